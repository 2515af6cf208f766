"""Measure workflows against other engines and against plain calls, in ratios of one run.

A round measures every row once, so that a disturbance of the machine affects all. Each figure is the median of its
rounds. A peer that cannot be installed is listed with its reason.
"""

import os
import platform as machine
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from aliquot_bench.base import BenchRequest
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least, at_most
from aliquot_bench.workflow import engine, peers
from aliquot_bench.workflow.picture import draw_goals

DBOS_STEPS = 20


class WorkflowBench:
    """The benchmark `workflow`."""

    needs_data = False

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._rounds = 2 if request.quick else 5
        self._moto, self._dbos = peers.moto(), peers.dbos()
        self._figures: dict[str, list[float]] = {}
        self._goals: list[Goal] = []
        self.steps = 2 + self._rounds

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        for peer in (self._moto, self._dbos):
            on_step(f"preparing {peer.name}")
            peer.prepare(lambda _: None)
        for number in range(self._rounds):
            on_step(f"round {number + 1} of {self._rounds}: the interpreter and other engines")
            self._engines()
        self._goals = self._engine_goals()
        return BenchResult("workflow", self._quick, self._goals, [self._engine_table()])

    def draw(self, path: Path) -> None:
        draw_goals(self._goals, path)

    def _engines(self) -> None:
        runs = 5 if self._quick else 20
        self._add("transition", engine.transition_us(runs))
        texts = engine.pass_and_choice(1), engine.pass_and_choice(engine.STATES + 1)
        self._moto.measure([*texts, engine.INPUT, 3 if self._quick else 10])
        self._dbos.measure([DBOS_STEPS, 3 if self._quick else 10])
        self._add("in a row", 1e6 * engine.called_in_a_row_s())
        self._add("by the engine", 1e6 * engine.called_by_the_engine_s())

    def _add(self, name: str, value: float) -> None:
        self._figures.setdefault(name, []).append(value)

    def _typical(self, name: str) -> float | None:
        return _median(self._figures.get(name, []))

    def _engine_goals(self) -> list[Goal]:
        transition = self._typical("transition")
        return [
            at_least("a transition of moto against ours", _ratio(_median(self._moto.samples), transition), 40, "times"),
            at_most(
                f"{engine.FUNCTIONS} functions of 1 ms by the interpreter against calling them in a row",
                _ratio(self._typical("by the engine"), self._typical("in a row")),
                1.05,
                "times",
            ),
        ]

    def _engine_table(self) -> ResultTable:
        cores = len(os.sched_getaffinity(0))
        rows: list[list[str | float | None]] = [
            ["Aliquot, a transition of 100 Pass and Choice states", self._typical("transition"), ""],
            [f"moto {self._moto.version}, the same", _median(self._moto.samples), self._moto.reason],
            [f"DBOS {self._dbos.version} on SQLite, a step", _median(self._dbos.samples), self._dbos.reason],
            [f"{engine.FUNCTIONS} functions of 1 ms, called in a row", self._typical("in a row"), ""],
            ["the same as tasks of the interpreter", self._typical("by the engine"), ""],
        ]
        title = (
            f"Engines in one process, median of {self._rounds} rounds; {cores} cores, Python {machine.python_version()}"
        )
        return ResultTable(title, ["", "µs", "why not"], rows)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _ratio(value: float | None, to: float | None) -> float | None:
    return value / to if value is not None and to else None
