"""What a run had of the fabric, as annotations of its record."""

from aliquot.live.invocations.activations import note
from aliquot.storage.messages import RunSettled


def notes_of(settled: RunSettled | str) -> str:
    """A text says why there is nothing to be told."""
    if isinstance(settled, str):
        return note("dataError", settled) if settled else ""
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
