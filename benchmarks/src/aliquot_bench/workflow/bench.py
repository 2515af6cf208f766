"""Measure workflows against other engines and against plain calls, in ratios of one run.

A round measures every row once, so that a disturbance of the machine affects all. Each figure is the median of its
rounds. A peer that cannot be installed is listed with its reason.
"""

import os
import platform as machine
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from aliquot.testing.client import CallError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.result import MEASURED, BenchResult, Goal, ResultTable, at_least, at_most
from aliquot_bench.workflow import engine, large_values, live, peers
from aliquot_bench.workflow.picture import draw_goals

DBOS_STEPS = 20


class WorkflowBench:
    """The benchmark `workflow`."""

    assumed = MEASURED
    needs_data = False

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick
        self._rounds = 2 if request.quick else 5
        self._asleep = 1000 if request.quick else 10_000
        self._moto, self._dbos = peers.moto(), peers.dbos()
        self._figures: dict[str, list[float]] = {}
        self._goals: list[Goal] = []
        self._reason = ""  # why executions could not be measured
        self.steps = 3 + 2 * self._rounds

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        for peer in (self._moto, self._dbos):
            on_step(f"preparing {peer.name}")
            peer.prepare(lambda _: None)
        for number in range(self._rounds):
            on_step(f"round {number + 1} of {self._rounds}: the interpreter and other engines")
            self._engines()
            on_step(f"round {number + 1} of {self._rounds}: executions on a server")
            self._executions()
        on_step("starts of a server with sleeping executions")
        self._starts()
        self._goals = [*self._engine_goals(), *self._live_goals()]
        return BenchResult(
            "workflow", self._quick, self._goals, [self._engine_table(), self._live_table()], self.assumed
        )

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

    def _executions(self) -> None:
        """Measure one server: calls and executions in turn, many at once, and beside expressions that never end."""
        if self._reason:
            return
        try:
            with live.workflow_server() as server:
                for name, seconds in live.measure_calls(server, 10 if self._quick else 50).items():
                    self._add(name, 1e6 * median(seconds))
                large_values.prepare(server)
                for name, seconds in large_values.measure(server, 2 if self._quick else 5).items():
                    self._add(name, 1e6 * median(seconds))
                count = 256 if self._quick else 2048
                express, standard = (live.per_second(server, name, count) for name in (live.EXPRESS, live.STANDARD))
                without, beside = live.beside_evil_p99_s(server, 500 if self._quick else 3000)
        except (MeasurementError, CallError) as error:
            self._reason = str(error)
            return
        self._add("express per second", express)
        self._add("standard per second", standard)
        self._add("p99 alone", 1e6 * without)
        self._add("p99 beside evil", 1e6 * beside)

    def _starts(self) -> None:
        if self._reason:
            return
        try:
            without, beside = live.start_with_sleeping_s(self._asleep, 2 if self._quick else 5)
        except (MeasurementError, CallError) as error:
            self._reason = str(error)
            return
        self._figures["start"] = [1e6 * seconds for seconds in without]
        self._figures["start beside sleeping"] = [1e6 * seconds for seconds in beside]

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

    def _against(self, name: str, other: str, part: float = 1.0) -> float | None:
        """Return a figure against a part of another, as the median of the ratios of the rounds."""
        pairs = zip(self._figures.get(name, ()), self._figures.get(other, ()), strict=False)
        return _median([value / (part * to) for value, to in pairs])

    def _step_us(self) -> float | None:
        """Return the time of a durable task with its sandbox: that of ten less that of one, over nine."""
        pairs = zip(self._figures.get(live.STANDARD, ()), self._figures.get(live.STANDARD_ONE, ()), strict=False)
        return _median([(many - one) / (live.TASKS - 1) for many, one in pairs])

    def _live_goals(self) -> list[Goal]:
        ten, step = f"{live.TASKS} no-op tasks", self._step_us()
        return [
            at_most(f"express, {ten}, against as many calls", self._against(live.EXPRESS, live.PLAIN), 0.7, "times"),
            at_most(f"express, {ten}, against a sequence", self._against(live.EXPRESS, live.SEQUENCE), 1.2, "times"),
            at_most(
                f"a chain of {ten} in one group against one call",
                self._against(live.CHAINED, live.PLAIN, 1 / live.TASKS),
                3,
                "times",
            ),
            at_most("a durable task against a step of DBOS", _ratio(step, _median(self._dbos.samples)), 0.3, "times"),
            at_least(
                f"durable executions per second against express, {live.CALLERS} at once",
                self._against("standard per second", "express per second"),
                0.5,
                "times",
            ),
            at_most(
                "10 MB through three tasks by reference, against JSON in a sequence",
                self._against(large_values.AS_OBJECT, large_values.AS_JSON),
                0.3,
                "times",
            ),
            at_most(
                "the same in one group",
                self._against(large_values.IN_GROUP, large_values.AS_JSON),
                0.05,
                "times",
            ),
            at_most(
                f"a start with {self._asleep} sleeping executions against none",
                self._against("start beside sleeping", "start"),
                1.5,
                "times",
            ),
            at_most(
                "p99 of a call beside expressions that never end, against without",
                self._against("p99 beside evil", "p99 alone"),
                2,
                "times",
            ),
        ]

    def _live_table(self) -> ResultTable:
        names = {
            live.PLAIN: f"{live.TASKS} calls of a no-op over one connection",
            live.SEQUENCE: f"a sequence of {live.TASKS} no-ops",
            live.EXPRESS: f"express, {live.TASKS} tasks",
            live.STANDARD: f"durable, {live.TASKS} tasks",
            live.STANDARD_ONE: "durable, 1 task",
            live.CHAINED: f"express, a chain of {live.TASKS} tasks in one group",
            large_values.AS_JSON: "10 MB of JSON through a sequence of three functions",
            large_values.AS_OBJECT: "10 MB through three tasks by reference, express",
            large_values.IN_GROUP: "10 MB through three tasks of one group, express",
            "p99 alone": "p99 of a call",
            "p99 beside evil": "p99 of a call beside expressions that never end",
            "start": "start of a server without executions",
            "start beside sleeping": f"start of a server with {self._asleep} sleeping executions",
        }
        rows: list[list[str | float | None]] = [
            [text, self._typical(name), self._reason if self._typical(name) is None else ""]
            for name, text in names.items()
        ]
        rows.append(["a durable task with its sandbox", self._step_us(), ""])
        return ResultTable("Executions on a server", ["", "µs", "why not"], rows)

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
