"""The bill of `aliquot usage --bill`: calls, device time and device memory by tenant and action."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.console import output
from aliquot.cli.results import print_json, seconds, show, table
from aliquot.core.units import GIB
from aliquot.sdk.units import read_ms

if TYPE_CHECKING:
    from aliquot.live.usage.bill import BillLine

_DAY_S = 86_400


def print_bill(data: Path, action: str | None, last: str, *, by_day: bool, as_json: bool) -> None:
    """Print the bill of the last days. `action` is a name, or /TENANT/NAME."""
    from aliquot.live.usage.bill import bill_lines

    first_day = 0 if last == "all" else int((time.time() - read_ms(last, "--last") / 1000) // _DAY_S)
    wanted = [
        line
        for line in bill_lines(data, first_day, by_day=by_day)
        if action in (None, line.action, f"/{line.tenant}/{line.action}")
    ]
    if as_json:
        print_json([_as_json(line) for line in wanted])
    elif not wanted:
        output.print("no calls in this time; --last all shows all days")
    else:
        _show(wanted, by_day=by_day)


def _show(lines: "list[BillLine]", *, by_day: bool) -> None:
    days = ("day",) if by_day else ()
    made = table("bill", *days, "tenant", "action", ">calls", ">run", ">device", ">GiB x s", names=2)
    for line in lines:
        day = () if line.day is None else (_date(line.day),)
        use = (seconds(line.run_seconds), seconds(line.device_seconds), f"{line.byte_seconds / GIB:.3f}")
        made.add_row(*day, line.tenant, line.action, str(line.calls), *use)
    show(made)


def _as_json(line: "BillLine") -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(line)
    day = found.pop("day")
    return found if day is None else {"day": _date(day), **found}


def _date(day: object) -> str:
    assert isinstance(day, int)  # noqa: S101 - as the store has it
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
