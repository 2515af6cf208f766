"""Reads the bill from the store of a platform that runs, has ended or was killed."""

import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.live.store.base import StoreError
from aliquot.live.store.bills import BillRow, read_bill
from aliquot.live.store.records import name_of_owner
from aliquot.live.store.schema import connect_reader, locate

_BUSY_MS = 5000


class BillLine(Struct, frozen=True, rename="camel"):
    """The use of one action, on one day or on all days together."""

    tenant: str
    action: str
    calls: int
    run_seconds: float
    device_seconds: float
    byte_seconds: float
    day: int | None = None  # since the epoch


def bill_lines(data: Path, first_day: int, *, by_day: bool) -> list[BillLine]:
    """Return the lines of the bill from a day on, sorted by tenant, action and day."""
    file = locate(data)
    if not file.exists():
        raise InputError(f"--data: there is no store in {data}; start the platform once")
    try:
        with closing(connect_reader(file, busy_ms=_BUSY_MS)) as connection:
            rows = read_bill(connection, first_day)
    except StoreError as error:
        raise InputError(f"--data: {error}") from error
    except sqlite3.OperationalError as error:
        raise InputError(
            f"--data: {file} has no bill; it is of an older version, and the next start adds it"
        ) from error
    totals: dict[tuple[str, str, int | None], list[BillRow]] = {}
    for row in rows:
        totals.setdefault((name_of_owner(row.owner), row.action, row.day if by_day else None), []).append(row)
    return [
        BillLine(
            tenant,
            action,
            sum(row.calls for row in found),
            sum(row.run_s for row in found),
            sum(row.device_s for row in found),
            sum(row.byte_s for row in found),
            day,
        )
        for (tenant, action, day), found in sorted(totals.items(), key=lambda item: (item[0][:2], item[0][2] or 0))
    ]
