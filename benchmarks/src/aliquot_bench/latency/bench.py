"""Measure a warm call of Aliquot, of bare servers and of other serving systems, on this machine.

Only one server runs at a time. A round measures each of them once, so that a disturbance of the machine affects all.
Ratios are taken within a round. A system that cannot be installed or started is listed with its reason.
"""

import os
import platform as machine
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from aliquot.core.errors import InputError
from aliquot.testing.client import CallError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError, run
from aliquot_bench.latency.downloads import TORCH_FOLDER, check_names, chosen_peers, downloads
from aliquot_bench.latency.figures import (
    BARE,
    BEFORE,
    OURS,
    PlatformFigures,
    TargetResult,
    goals,
    load_of_others,
    tables,
)
from aliquot_bench.latency.gateways import COUNTS, GatewayFigures, measure_gateways
from aliquot_bench.latency.kinds import KindFigures, measure_kinds
from aliquot_bench.latency.picture import draw
from aliquot_bench.latency.platform import AliquotTarget, TorchStart, measure_torch
from aliquot_bench.latency.targets import CALLERS, BaselineTarget, LatencyTarget, PeerTarget, PingPongTarget
from aliquot_bench.latency.wrk import check_wrk
from aliquot_bench.result import MEASURED, BenchResult

UVICORN = "uvicorn, httptools, uvloop; one process"


class LatencyBench:
    """The benchmark `latency`."""

    assumed = f"{MEASURED}, one server at a time"
    needs_data = False

    def __init__(self, request: BenchRequest) -> None:
        check_wrk()
        check_names(request.peers or ())
        self._peer_names = request.peers
        self._quick = request.quick
        self._seconds = 2.0 if request.quick else 5.0
        self._rounds, self._peer_rounds = (2, 1) if request.quick else (5, 3)
        turns = 2 if request.quick else 3
        self._ours = AliquotTarget(OURS, turns)
        self._before = None if request.before is None else AliquotTarget(BEFORE, turns, _with_aliquot(request.before))
        self._own = [target for target in (self._before, self._ours) if target is not None]
        self._baselines: Sequence[LatencyTarget] = (
            BaselineTarget("bare", BARE, UVICORN),
            PingPongTarget(),
            BaselineTarget("hop", f"{BARE}, hop", f"{UVICORN}, and a Unix socket to a worker process"),
        )
        self._peers: Sequence[LatencyTarget] = [PeerTarget(peer) for peer in chosen_peers(request.peers)]
        self._measured: dict[str, TargetResult] = {}
        each_round = len(self._baselines) + len(self._own)
        self.steps = len(self._peers) + self._rounds * each_round + self._peer_rounds * len(self._peers) + 2
        self.steps += self._peer_rounds * len(COUNTS)

    def downloads(self) -> dict[str, int]:
        return downloads(self._peer_names)

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        for target in (*self._baselines, *self._own, *self._peers):
            peer = target in self._peers
            if peer:
                on_step(f"preparing {target.name}")
            self._prepare(target, on_step if peer else lambda _: None, is_peer=peer)
        for number in range(self._rounds):
            peers = self._peers if number < self._peer_rounds else ()
            own = self._own[::-1] if number % 2 else self._own  # neither version always comes first
            for target in (*self._baselines, *own, *peers):
                on_step(f"round {number + 1} of {self._rounds}: {target.name}")
                self._measure(number, target)
        on_step("functions that import torch")
        torch, reason = self._torch(on_step)
        if reason:
            self._measured["torch"] = TargetResult("Aliquot with torch", "", reason=reason)
        on_step("other kinds of calls")
        kinds, reason = self._kinds()
        if reason:
            self._measured["kinds"] = TargetResult("Aliquot, kinds of calls", "", reason=reason)
        gateways, reason = self._gateways(on_step)
        if reason:
            self._measured["gateways"] = TargetResult("Aliquot, gateway processes", "", reason=reason)
        extras, found = _extras(self._ours, torch), list(self._measured.values())
        before = None if self._before is None else _extras(self._before, None)
        shown = tables(found, extras, self._title(), kinds, before, gateways)
        return BenchResult("latency", self._quick, goals(found, extras), shown, self.assumed)

    def draw(self, path: Path) -> None:
        draw(list(self._measured.values()), path)

    def _prepare(self, target: LatencyTarget, on_step: Callable[[str], None], *, is_peer: bool) -> None:
        measured = self._measured[target.name] = TargetResult(target.name, target.settings, is_peer=is_peer)
        try:
            measured.version = target.prepare(on_step)
        except (MeasurementError, CallError) as error:
            measured.reason = f"does not install: {error}"

    def _measure(self, number: int, target: LatencyTarget) -> None:
        measured = self._measured[target.name]
        if measured.reason:
            return
        try:
            measured.add(number, target.measure(self._seconds))
        except (MeasurementError, CallError) as error:
            measured.reason = str(error)

    def _torch(self, on_step: Callable[[str], None]) -> tuple[TorchStart | None, str]:
        if self._measured[OURS].reason:
            return None, "Aliquot itself could not be measured"
        if self._peer_names is not None and TORCH_FOLDER not in self._peer_names:
            return None, "left out by --peers"
        try:
            return measure_torch(on_step), ""
        except (MeasurementError, CallError) as error:
            return None, str(error)

    def _kinds(self) -> tuple[list[KindFigures], str]:
        try:
            return measure_kinds(self._seconds), ""
        except (MeasurementError, CallError) as error:
            return [], str(error)

    def _gateways(self, on_step: Callable[[str], None]) -> tuple[list[GatewayFigures], str]:
        try:
            return measure_gateways(self._seconds, self._peer_rounds, on_step), ""
        except (MeasurementError, CallError) as error:
            return [], str(error)

    def _title(self) -> str:
        typical, worst = load_of_others(list(self._measured.values())) or (0, 0)
        busy = f"{typical:.0%} of the machine busy with other things meanwhile (at worst {worst:.0%})"
        cores = len(os.sched_getaffinity(0))
        peers = "" if self._peer_rounds == self._rounds else f", of the first {self._peer_rounds} for peers"
        return (
            f"A warm no-op over HTTP, 1 and {CALLERS} callers, one server at a time; median of {self._rounds} rounds"
            f"{peers}, {self._seconds:g} s each; {cores} cores, Python {machine.python_version()},"
            f" {busy}"
        )


def _with_aliquot(python: Path) -> str:
    """Return the path of an interpreter. Raises `InputError` if it cannot import Aliquot."""
    try:
        run([str(python), "-c", "import aliquot.cli"])
    except (MeasurementError, OSError) as error:
        raise InputError(
            f"--before: {python} is no Python interpreter of an environment with Aliquot: {error}"
        ) from error
    return str(python)


def _extras(ours: AliquotTarget, torch: TorchStart | None) -> PlatformFigures:
    ratios = [many / one for one, many in zip(ours.one_per_second, ours.many_per_second, strict=False)]
    return PlatformFigures(
        up_s=_median(ours.up_s),
        idle_mb=_median(ours.idle_mb),
        loaded_mb=_median(ours.loaded_mb),
        many_to_one=_median(ratios),
        one_per_second=_median(ours.one_per_second),
        many_per_second=_median(ours.many_per_second),
        cold_ms=_median([cold.whole_ms for cold in ours.cold]),
        cold_init_ms=_median([cold.init_ms for cold in ours.cold]),
        torch_cold_ms=torch.cold.whole_ms if torch else None,
        torch_init_ms=torch.cold.init_ms if torch else None,
        torch_plain_ms=torch.plain_ms if torch else None,
    )


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
