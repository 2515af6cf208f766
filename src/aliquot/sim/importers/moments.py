"""Dates in traces, as seconds since the first of them."""

from collections.abc import Iterable
from datetime import UTC, datetime

from aliquot.sim.arrivals import Arrival
from aliquot.sim.csv_input import CsvRow
from aliquot.sim.workloads import MICROSECONDS


def read_moment(row: CsvRow, column: str) -> float:
    """Seconds since 1970, to the microsecond. No trace names its zone, and only differences count."""
    text = row.text(column)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise row.error(f"{column} is '{text}'; it takes a date and time without a zone, as in 2023-11-16 18:15:46.68")
    return moment.replace(tzinfo=UTC).timestamp()


def since_first(calls: Iterable[Arrival]) -> list[Arrival]:
    """The same calls, timed from the earliest of them."""
    listed = list(calls)
    first_s = min((call.time_s for call in listed), default=0)
    return [call._replace(time_s=round(call.time_s - first_s, MICROSECONDS)) for call in listed]
