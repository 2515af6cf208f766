"""Moves of running sandboxes under load on a real server: whether anything is lost, and how long a run stands still.

A function looks at the clock all the time and tells the longest gap that it saw. So a gap without any move is what the
machine itself causes.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from statistics import quantiles
from typing import Any

from aliquot.testing.client import CallError, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import scratch
from aliquot_bench.result import MEASURED, Goal, ResultTable, at_least, at_most

CALLERS = 3
RUN_S = 0.15
PAUSE_S = 0.05  # after each run, so that sandboxes move while they are idle, too
MAX_LATER_MS = 5
WATCH = f"""
import time
def main(args):
    begun = last = time.perf_counter()
    gap = 0.0
    while last - begun < {RUN_S}:
        now = time.perf_counter()
        gap, last = max(gap, now - last), now
    return {{"number": args["number"], "gap_ms": gap * 1000}}
"""


def measure_moves(*, quick: bool) -> tuple[list[Goal], ResultTable]:
    """Move sandboxes while they run, as often as goals say, and compare with a time without moves."""
    wanted = 100 if quick else 1000
    with (
        scratch() as folder,
        LiveServer(folder / "data", "--devices", "host:2", "--provisioning", "forecast") as server,
    ):
        server.deploy("watch", WATCH, annotations=to_pairs({"gpu-share": 0.25, "warm": CALLERS}))
        numbers = count()
        still = _run(server, numbers, 15.0, 0)
        moving = _run(server, numbers, 600.0, wanted)
        moves = server.operate("GET", "status")
    done = _moves(moves)
    before_ms, longest_ms = _p99(still.gaps_ms), max(moving.gaps_ms)
    goals = [
        at_least("live moves under load", done, wanted, "moves"),
        at_most("live moves: calls that were lost or ran twice", still.wrong + moving.wrong, 0, "calls"),
        at_most("live moves: longest stall beyond p99 without moves", longest_ms - before_ms, MAX_LATER_MS, "ms"),
    ]
    columns = ["", "calls", "wrong", "moves", "asked in a run", "stall p50, ms", "p99, ms", "longest, ms"]
    rows: list[list[str | float | None]] = [
        [what, one.calls, one.wrong, number, one.in_runs, _p50(one.gaps_ms), _p99(one.gaps_ms), max(one.gaps_ms)]
        for what, one, number in (("without moves", still, 0), ("with moves", moving, done))
    ]
    return goals, ResultTable(
        f"Moves of sandboxes between two virtual devices, {CALLERS} callers", columns, rows, MEASURED
    )


class LoadResult:
    """The calls of one time: their stalls, and those that did not end once each."""

    def __init__(self) -> None:
        self.calls = self.wrong = self.in_runs = 0
        self.gaps_ms: list[float] = []


def _run(server: LiveServer, numbers: Iterator[int], max_s: float, moves: int) -> LoadResult:
    """Call for so long, or until so many moves are done."""
    found, until = LoadResult(), time.monotonic() + max_s
    ended = False
    before = _moves(server.operate("GET", "status"))

    def call() -> None:
        with server.client() as client:
            while not ended and time.monotonic() < until:
                number = next(numbers)
                found.calls += 1
                try:
                    result = client.result("watch", {"number": number})
                except CallError:
                    found.wrong += 1
                    continue
                found.wrong += result["number"] != number
                found.gaps_ms.append(result["gap_ms"])
                time.sleep(PAUSE_S)

    with ThreadPoolExecutor(CALLERS) as pool:
        callers: list[Future[None]] = [pool.submit(call) for _ in range(CALLERS)]
        while moves and time.monotonic() < until:
            status = server.operate("GET", "status")
            if _moves(status) - before >= moves:
                ended = True
                break
            found.in_runs += sum(_move(server, sandbox) for sandbox in status["sandboxes"])
    for caller in callers:
        caller.result()
    return found


def _move(server: LiveServer, sandbox: dict[str, Any]) -> bool:
    """Ask to move a sandbox to the other device, and return whether it moves in the midst of a run."""
    to = "host-1" if sandbox["device"] == "host-2" else "host-2"
    with suppress(CallError):  # it is moving, or has no room there
        server.operate("POST", "moves", json={"sandbox": sandbox["sandbox"], "device": to})
        return bool(sandbox["state"] == "busy")
    return False


def _moves(status: dict[str, Any]) -> int:
    return int(status["moves"]["done"])


def _p50(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1]
