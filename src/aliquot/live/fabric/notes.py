"""What a run had of the fabric, as annotations of its record."""

from aliquot.live.activations import note
from aliquot.storage.messages import RunSettled

_LOST = "the storage agent ended while it ran"


def notes_of(settled: RunSettled | None) -> str:
    """None: there is nobody left who could say."""
    if settled is None:
        return note("dataError", _LOST)
    opened = {str(found): number for found, number in sorted(settled.opened.items())}
    text = (
        note("dataTime", round(settled.data_s * 1000, 3))
        + note("prefetched", settled.prefetched_bytes)
        + note("wasted", settled.wasted_bytes)
        + note("opened", opened)
    )
    if settled.reasons:
        text += note("prefetchReasons", settled.reasons)
    return text + note("dataError", settled.error) if settled.error else text
