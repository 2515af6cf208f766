"""Measure every predictor on every recorded set, and eight concurrent users against each alone."""

from collections.abc import Callable
from pathlib import Path

from aliquot.learn.progress import TrainingProgress
from aliquot.learn.registry import EpochResult
from aliquot.learn.training import TooFewSessionsError
from aliquot.sim.importers.files import check_files
from aliquot_bench.base import BenchRequest
from aliquot_bench.prediction import interference, trial
from aliquot_bench.prediction.interference import InterferenceScores
from aliquot_bench.prediction.picture import draw
from aliquot_bench.prediction.sets import FILES, SETS, TRAINING_PARTS, load
from aliquot_bench.prediction.trained import load_or_train
from aliquot_bench.prediction.trial import SetResult
from aliquot_bench.result import PERCENT, BenchResult, Goal, ResultTable, at_least, at_most

MAX_QUICK_STEPS = {"FIFA": 200_000}  # by set
MAX_QUICK_STEPS_OTHERS = 40_000
MAX_PLACES, MAX_QUICK_PLACES = 30_000, 3_000
MAX_NETWORK_BYTES = 5_000_000
_MIN_PREDICTED = 50  # with fewer predicted files, the opened part is not a goal
_MAX_USER_STEPS = {True: 500, False: 4_000}  # length of a session with eight users, by `quick`


class PredictionBench:
    """The benchmark `prediction`."""

    assumed = "nothing about devices, recorded opens of files in their order"
    needs_data = True
    steps = 2 * len(TRAINING_PARTS) * len(SETS) + 1

    def __init__(self, request: BenchRequest, *, whole: bool = True) -> None:
        if whole and request.data.is_dir():
            check_files(request.data, [[(file,)] for file in FILES.values()])
        self._request = request
        self._trials: dict[str, SetResult] = {}  # of the last split
        self._splits: list[tuple[float, SetResult]] = []  # of all splits
        self._missing: list[str] = []
        self._curve: list[EpochResult] = []
        self._outcome: InterferenceScores | None = None

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        for name in SETS:
            for part in TRAINING_PARTS:
                on_step(f"{name}, {part:.0%} learned: training, or loading the trained predictors")
                self._train_and_score(name, part, on_step)
        on_step("eight users at once")
        try:
            self._outcome = interference.measure(self._request.data, _MAX_USER_STEPS[self._request.quick])
        except OSError:
            self._missing.append("the recorded starts, for eight users at once")
        return BenchResult("prediction", self._request.quick, self._goals(), self._tables(), self.assumed)

    def draw(self, path: Path) -> None:
        draw(list(self._trials.values()), self._curve, path)

    def _train_and_score(self, name: str, part: float, on_step: Callable[[str], None]) -> None:
        quick = self._request.quick
        max_steps = MAX_QUICK_STEPS.get(name, MAX_QUICK_STEPS_OTHERS) if quick else None
        try:
            recorded = load(name, self._request.data, max_steps, part)
        except OSError:
            if name not in self._missing:
                self._missing.append(name)
            on_step(f"{name} is missing")
            return
        try:
            trained = load_or_train(recorded, quick=quick, on_progress=_ignore)
        except TooFewSessionsError:
            self._missing.append(f"{name}, {part:.0%} learned: its {len(recorded.training)} sessions are too few")
            on_step(f"{name} has too few sessions")
            return
        on_step(f"{name}: {len(recorded.test)} sessions")
        found = trial.run(recorded, trained, MAX_QUICK_PLACES if quick else MAX_PLACES)
        self._splits.append((part, found))
        if part == TRAINING_PARTS[-1]:
            self._trials[name] = found
        if name == "FIFA":
            self._curve = trained.manifest.curve

    # --- goals and tables ---------------------------------------------------------------------------------------

    def _tables(self) -> list[ResultTable]:
        tables = [_of_set(one) for one in self._trials.values()]
        splits: list[list[str | float | None]] = [
            [
                one.name, PERCENT * part, one.winner, one.shortfall_top1, one.shortfall_top5, one.likely.predicted,
                None if one.likely.opened_share is None else PERCENT * one.likely.opened_share,
                1000 * one.likely.seconds,
            ]
            for part, one in self._splits
        ]  # fmt: skip
        columns = [
            "set", "learned, %", "chosen", "top-1 below the best", "top-5 below the best", "files told above 0.75",
            "of these opened, %", "one question, ms",
        ]  # fmt: skip
        title = "Splits by time: the chosen predictor against the best single one, and files named for a session's rest"
        tables.append(ResultTable(title, columns, splits))
        if self._outcome is not None:
            rows: list[list[str | float | None]] = [
                ["each user alone", PERCENT * self._outcome.alone.top1, PERCENT * self._outcome.alone.top5],
                ["eight at once, a history a session", PERCENT * self._outcome.together.top1,
                 PERCENT * self._outcome.together.top5],
                ["eight at once, one history for all", PERCENT * self._outcome.mixed.top1,
                 PERCENT * self._outcome.mixed.top5],
            ]  # fmt: skip
            tables.append(
                ResultTable("Eight users' recorded starts, interleaved (markov2)", ["", "top-1 %", "top-5 %"], rows)
            )
        if self._missing:
            tables.append(ResultTable("Not at hand", ["set"], [[name] for name in self._missing]))
        return tables

    def _goals(self) -> list[Goal]:
        goals = []
        fifa = self._trials.get("FIFA")
        for what in ("top1", "top5"):
            ahead = None
            if fifa is not None and "lstm" in fifa.predictors:
                ours, theirs = fifa.predictors["lstm"].score, fifa.predictors["markov1"].score
                ahead = PERCENT * (getattr(ours, what) - getattr(theirs, what))
            goals.append(at_least(f"FIFA: lstm above markov1, {what}{_why(fifa)}", ahead, 0.1, "points"))
        goals += [
            at_most(
                f"{one.name}, {part:.0%} learned: the chosen one ({one.winner}) below the best",
                one.shortfall,
                1,
                "points",
            )
            for part, one in self._splits
        ]
        networks = [one.predictors["lstm"] for one in self._trials.values() if "lstm" in one.predictors]
        slowest = max((1000 * one.p99_s for one in networks), default=None)
        largest = max((one.bytes for one in networks), default=None)
        goals.append(at_most("lstm: one prediction, p99, slowest set", slowest, 1, "ms"))
        goals.append(at_most("lstm: on disk, largest set", largest, MAX_NETWORK_BYTES, "bytes"))
        goals += [
            at_least(
                f"{one.name}, {part:.0%} learned: files told above 0.75 that were opened",
                PERCENT * one.likely.opened_share,
                75,
                "%",
            )
            for part, one in self._splits
            if one.likely.opened_share is not None and one.likely.predicted >= _MIN_PREDICTED
        ]
        if self._outcome is not None:
            lost = PERCENT * (self._outcome.alone.top1 - self._outcome.together.top1)
            goals.append(at_most("eight users at once: top-1 lost against each alone", lost, 1, "points"))
        return goals


def _why(fifa: SetResult | None) -> str:
    if fifa is None:
        return " (the set is not at hand)"
    return "" if "lstm" in fifa.predictors else f" ({fifa.without})"


def _of_set(one: SetResult) -> ResultTable:
    columns = [
        "predictor",
        "top-1 %",
        "top-5 %",
        "above 0.75, %",
        "of these right, %",
        "p50 µs",
        "p99 µs",
        "KB on disk",
    ]
    rows: list[list[str | float | None]] = []
    for name, result in one.predictors.items():
        found = result.score
        label = f"{name} (chosen)" if name == one.winner else name
        right = None if found.right is None else PERCENT * found.right
        rows.append([
            label, PERCENT * found.top1, PERCENT * found.top5, PERCENT * found.sure / max(1, found.places), right,
            1e6 * result.p50_s, 1e6 * result.p99_s, result.bytes / 1000,
        ])  # fmt: skip
    places = next(iter(one.predictors.values())).score.places
    return ResultTable(
        f"{one.name}: {one.training_sessions} sessions learned, {one.test_sessions} tried ({places} accesses)",
        columns,
        rows,
    )


def _ignore(_: TrainingProgress) -> None:
    pass
