"""Annotations about the files that a run opened: times, bytes and reasons of prefetches."""

from aliquot.live.invocations.activations import note
from aliquot.storage.messages import RunSettled


def notes_of(report: RunSettled | str) -> str:
    """Return the annotations of a run's report. A text instead of a report says why there is none."""
    if isinstance(report, str):
        return note("dataError", report) if report else ""
    opened = {str(found): number for found, number in sorted(report.opened.items())}
    text = (
        note("dataTime", round(report.data_s * 1000, 3))
        + note("prefetched", report.prefetched_bytes)
        + note("wasted", report.wasted_bytes)
        + note("opened", opened)
    )
    if report.reasons:
        text += note("prefetchReasons", report.reasons)
    return text + note("dataError", report.error) if report.error else text
