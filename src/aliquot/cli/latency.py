"""`aliquot latency`: where the time of a function's calls went."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from aliquot.cli.console import progress, say
from aliquot.cli.gateway import AsJson, Data, FunctionName, GatewayClient, annotations_of, connect
from aliquot.cli.invoke import call
from aliquot.cli.logs import check_known
from aliquot.cli.recent_calls import MAX_SCANNED, read_moment, scan_calls, took_ms
from aliquot.cli.results import count, print_json, seconds, show, table
from aliquot.cli.values import Param, read_params
from aliquot.core.errors import InputError

_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
_WAY = "wayTime"  # milliseconds that a measured call took beyond what its record has
# Parts of a call in its order, each in milliseconds of a record with its annotations.
_PARTS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float]] = {
    "reading": lambda _, notes: notes.get("gatewayTime", 0),
    "waiting": lambda _, notes: notes.get("waitTime", 0),
    "start": lambda _, notes: notes.get("initTime", 0),
    "files": lambda _, notes: notes.get("dataTime", 0),
    "run": lambda record, notes: notes.get("deviceTime", record.get("duration", 0)) - notes.get("dataTime", 0),
    "way": lambda record, _: record.get(_WAY, 0),
}


def latency(
    name: FunctionName,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=MAX_SCANNED, help="The number of calls.")] = 1000,
    since: Annotated[str | None, typer.Option(help="Only calls that began within this time, such as 10m.")] = None,
    measure: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_SCANNED,
            metavar="N",
            help="Make N calls from here, and show what the way there and back adds.",
        ),
    ] = 0,
    param: Param = [],  # noqa: B006 - typer copies it
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show where the time of a function's calls went: waiting, starting a sandbox, files of datasets, and the run.

    The times are those of the platform, from a call's request to its end. If calls are made from here with --measure,
    the row "way" is what the network and this side added. `aliquot activation list NAME --slowest` lists the slowest.
    """
    gateway = connect(data)
    if param and not measure:
        raise InputError("--param: it is for the calls of --measure; say how many, such as --measure 20")
    query: dict[str, str | int] = {"name": name}
    query |= {"since": read_moment(since, "--since")} if since is not None else {}
    calls = _measured(gateway, name, read_params(param, None, "--param"), measure) if measure else []
    calls = calls or scan_calls(gateway, query, last)
    if not calls:
        check_known(gateway, name)
        say(f"there are no calls of {name}")
        return
    parts = _times(calls)
    figures = {part: {word: _at(times, share) for word, share in _PERCENTILES.items()} for part, times in parts.items()}
    cold = sum(1 for record in calls if "initTime" in annotations_of(record))
    failed = sum(1 for record in calls if record.get("statusCode"))
    if as_json:
        print_json({"calls": len(calls), "cold": cold, "failed": failed, "milliseconds": figures})
        return
    say(f"{name}: {count(len(calls), 'call')}, {cold} cold, {failed} failed")  # a title would be folded with the table
    rows = table("", "", *(f">{word}" for word in _PERCENTILES))
    for part, values in figures.items():
        rows.add_row(part, *(seconds(value / 1000) for value in values.values()))
    show(rows)


def _measured(gateway: GatewayClient, name: str, payload: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Make calls one after another, and return their records with the time that each took beyond its record's."""
    records = []
    with progress() as bar:
        for _ in bar.track(range(number), description=f"calling {name}"):
            begun_s = time.perf_counter()
            record = call(gateway, name, payload)
            whole_ms = (time.perf_counter() - begun_s) * 1000
            failed = 0 if record["response"]["success"] else 1
            records.append({**record, "statusCode": failed, _WAY: max(0.0, whole_ms - took_ms(record))})
    return records


def _times(calls: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the milliseconds of each part, sorted, and of the whole. Parts that no call has are left out."""
    found: dict[str, list[float]] = {part: [] for part in (*_PARTS, "whole")}
    for record in calls:
        notes = annotations_of(dict(record))
        each = {part: max(0.0, measure(record, notes)) for part, measure in _PARTS.items()}
        for part, time_ms in each.items():
            found[part].append(time_ms)
        found["whole"].append(sum(each.values()))
    return {part: sorted(times) for part, times in found.items() if any(times)}


def _at(times: Sequence[float], share: float) -> float:
    """Return the time within which this share of the calls ended."""
    return times[min(len(times) - 1, int(share * len(times)))]
