"""Measure the methods, the negative control and interference, one after the other over one limited link.

A full run then measures the predictors on the recorded sets, as `aliquot bench prediction` does. A part that cannot be
measured is listed with its reason, its goals are not met, and the other parts still run.
"""

import os
import platform as machine
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.units import MB
from aliquot.testing.client import CallError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.origin.link import LinkShape, LinkSpeed, ServedOrigin, serve_origin
from aliquot_bench.prediction import PredictionBench
from aliquot_bench.prefetch import picture
from aliquot_bench.prefetch.control import ControlPart
from aliquot_bench.prefetch.interference import InterferencePart
from aliquot_bench.prefetch.methods import MethodsPart
from aliquot_bench.prefetch.part import QUICK, PrefetchPart, PrefetchSizes
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least


class PrefetchBench:
    """The benchmark `prefetch`."""

    assumed = "a link as limited as the first table says, otherwise measured on this machine"
    needs_data = False

    def __init__(
        self, request: BenchRequest, sizes: PrefetchSizes | None = None, shape: LinkShape | None = None
    ) -> None:
        self._quick = request.quick
        self._shape = shape or LinkShape()
        chosen = sizes or (QUICK if request.quick else PrefetchSizes())
        self._methods = MethodsPart(chosen)
        self._parts: Sequence[PrefetchPart] = (self._methods, ControlPart(chosen), InterferencePart(chosen))
        self._left_out: dict[str, str] = {}
        self._prediction = None if request.quick or sizes else PredictionBench(request, whole=False)
        self.steps = 1 + sum(part.steps for part in self._parts)
        self.steps += self._prediction.steps if self._prediction else 0

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        goals: list[Goal] = []
        tables: list[ResultTable] = []
        files = {path: size for part in self._parts for path, size in part.files.items()}
        with serve_origin(files, self._shape) as link:
            on_step("measuring the link")
            setting = _setting(link, self._shape, link.measure())
            for part in self._parts:
                try:
                    part.run(link, on_step)
                except (MeasurementError, CallError) as error:
                    self._left_out[part.name] = str(error)
                    goals.append(at_least(f"{part.name}: it could not be measured", None, 1))
                    continue
                goals += part.goals()
                tables += part.tables()
        if self._prediction is not None:
            predicted = self._prediction.run(on_step)
            goals += predicted.goals
            tables += [replace(each, assumed=each.assumed or predicted.assumed) for each in predicted.tables]
        if self._left_out:
            tables.append(ResultTable("Left out", ["", "why"], [[name, why] for name, why in self._left_out.items()]))
        return BenchResult("prefetch", self._quick, goals, [setting, *tables], self.assumed)

    def draw(self, path: Path) -> None:
        if self._methods.name in self._left_out:
            raise InputError(f"--plot: there is nothing to draw: {self._left_out[self._methods.name]}")
        picture.draw(self._methods.points(), self._methods.bars(), path)


def _setting(link: ServedOrigin, shape: LinkShape, found: LinkSpeed) -> ResultTable:
    requested = f"{shape.bytes_per_s / MB:g} MB/s, {1000 * shape.latency_s:g} ms"
    measured = f"{found.bytes_per_s / MB:.1f} MB/s, {1000 * found.latency_s:.2f} ms"
    rows: list[list[str | float | None]] = [
        ["link", link.description],
        ["asked for, and measured by one reader", f"{requested}; {measured}"],
        [
            "plain remote mount",
            "the function reads from the origin itself: a round trip to look a file up, one to read it, no cache",
        ],
        ["machine", f"{len(os.sched_getaffinity(0))} cores, Python {machine.python_version()}, {machine.release()}"],
        ["load average at the start", os.getloadavg()[0]],
    ]
    return ResultTable("Where it was measured", ["", ""], rows)
