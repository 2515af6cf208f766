"""Elasticity: the gain of a borrower while the owner of the device is idle, and the loss of the owner."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median

from msgspec import Struct

from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_most
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.platform import SharingPlatform, host_device
from aliquot_bench.sharing.windows import PER_SECOND, WindowCounts, read_counts

HARD = "hard"
ELASTIC_MODES = ("elastic", "elastic_guarded")
BORROWER, OWNER = 0.1, 0.9  # their shares; the owner's work is this part of the borrower's
ARRIVES = 0.05  # part of the borrower's work that is done when the owner starts
PROBE_S = 0.5  # to measure the borrower's speed alone


class BorrowTrial(Struct, frozen=True):
    """One run of borrower and owner. Times are from the request of a call to the end of its work."""

    sent: float
    borrower: WindowCounts
    owner: WindowCounts
    borrower_s: float
    owner_s: float
    whole_per_second: float  # iterations on a whole device, measured just before
    arrived: float  # part of the borrower's work that was done when the owner started

    def utilisation(self, seconds: float) -> float:
        """Return the utilisation of the device in the first seconds."""
        until = self.sent + seconds
        done = self.borrower.between(self.sent, until) + self.owner.between(self.sent, until)
        return done / (self.whole_per_second * seconds)


def change(new: float, old: float) -> float:
    """Return the change in percent of the old value."""
    return PERCENT * (new / old - 1)


class ElasticPart:
    """The part `elastic`."""

    name = "elastic"
    on_device = True

    def __init__(self, sizes: SharingSizes) -> None:
        self._sizes = sizes
        self._trials: dict[str, list[BorrowTrial]] = {mode: [] for mode in (HARD, *ELASTIC_MODES)}
        self.steps = sizes.repetitions * (1 + len(ELASTIC_MODES))

    def run(self, on_step: Callable[[str], None]) -> str:
        with ExitStack() as stack:
            platforms = {mode: stack.enter_context(host_device(mode)) for mode in self._trials}
            for platform in platforms.values():
                platform.deploy_loops([("borrower", BORROWER), ("owner", OWNER)])
            turns = round(_alone(platforms[ELASTIC_MODES[0]]) * self._sizes.elastic_s)
            for number in range(self._sizes.repetitions):
                for mode, platform in platforms.items():
                    on_step(f"elastic, repetition {number + 1}: {mode}")
                    whole = _alone(platforms[ELASTIC_MODES[0]])
                    self._trials[mode].append(_run_trial(platform, turns, whole))
            return platforms[HARD].unenforced

    def _typical(self, mode: str, figure: Callable[[BorrowTrial], float]) -> float:
        return median(map(figure, self._trials[mode]))

    def _changes(self, mode: str) -> tuple[float, float]:
        """Return the change of the borrower's and the owner's time against hard limits."""
        return (
            change(self._typical(mode, lambda t: t.borrower_s), self._typical(HARD, lambda t: t.borrower_s)),
            change(self._typical(mode, lambda t: t.owner_s), self._typical(HARD, lambda t: t.owner_s)),
        )

    def _utilisation(self, mode: str) -> tuple[float, float]:
        """Return the utilisation in percent with hard limits and in this mode, over the borrower's time in it."""
        window_s = self._typical(mode, lambda t: t.borrower_s)
        hard = self._typical(HARD, lambda t: t.utilisation(window_s))
        return PERCENT * hard, PERCENT * self._typical(mode, lambda t: t.utilisation(window_s))

    def goals(self) -> list[Goal]:
        found = []
        for mode in ELASTIC_MODES:
            borrower, owner = self._changes(mode)
            found += [
                at_most(f"{mode}: the borrower's time against hard limits", borrower, -80, "%"),
                at_most(f"{mode}: the owner's time against hard limits", owner, 5, "%"),
            ]
        return found

    def tables(self) -> list[ResultTable]:
        columns = ["sharing", "borrower, s", "owner, s", "owner came at, % of the work", "borrower, change in %"]
        columns += ["owner, change in %", "utilisation with hard limits, %", "utilisation, %", "its change in %"]
        rows: list[list[str | float | None]] = []
        for mode in self._trials:
            times = [self._typical(mode, figure) for figure in (lambda t: t.borrower_s, lambda t: t.owner_s)]
            arrived = PERCENT * self._typical(mode, lambda t: t.arrived)
            more: list[str | float | None] = [None] * 5
            if mode != HARD:
                hard, lent = self._utilisation(mode)
                more = [*self._changes(mode), hard, lent, change(lent, hard)]
            rows.append([mode, *times, arrived, *more])
        rows.append(["KNIX (published)", 1300.0, 820.0, None, -80.0, 15.0, None, None, 73.5])
        title = (
            f"Elastic: a borrower with {BORROWER:g} and an owner with {OWNER:g} of one device, whose work is {OWNER:g}"
            f" of the borrower's and who comes when {ARRIVES:.0%} is done; medians of {self._sizes.repetitions}; the"
            " utilisation is that of the device, by work done, over the time that the borrower takes when it may borrow"
        )
        return [ResultTable(title, columns, rows)]

    def panels(self) -> list[PlotPanel]:
        panels = []
        for mode, trials in self._trials.items():
            trial = trials[-1]
            lines = [_line("borrower, 0.1", trial.borrower, trial), _line("owner, 0.9", trial.owner, trial)]
            panels.append(PlotPanel(f"Elastic: {mode}", "s", "% of the device", lines))
        return panels


def _alone(platform: SharingPlatform) -> float:
    """Return the iterations per second of the borrower alone."""
    return read_counts(platform.call("borrower", {"seconds": PROBE_S})).per_second


def _run_trial(platform: SharingPlatform, turns: int, whole: float) -> BorrowTrial:
    mark = max(1, round(ARRIVES * turns))
    ahead_s = mark / _alone(platform)
    with ThreadPoolExecutor(1) as threads:
        sent = time.monotonic()
        call = threads.submit(platform.call, "borrower", {"turns": turns, "mark": mark})
        time.sleep(ahead_s)
        owner_sent = time.monotonic()
        owner = read_counts(platform.call("owner", {"turns": round(OWNER * turns)}))
        borrower = read_counts(call.result())
    marked_s = (borrower.marked or borrower.ended) - borrower.began
    arrived = ARRIVES * (owner_sent - borrower.began) / marked_s
    return BorrowTrial(sent, borrower, owner, borrower.ended - sent, owner.ended - owner_sent, whole, arrived)


def _line(label: str, loop: WindowCounts, trial: BorrowTrial) -> PlotLine:
    xs = [(loop.first + index + 0.5) / PER_SECOND - trial.sent for index in range(len(loop.counts))]
    return PlotLine(label, xs, [PERCENT * count * PER_SECOND / trial.whole_per_second for count in loop.counts])
