"""Forecasts of demand on recorded series: how often intervals cover, and the loss of the chosen candidate."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from msgspec import Struct

from aliquot.learn.demand.candidates import BLEND, CANDIDATES
from aliquot.learn.demand.forecaster import DemandForecaster
from aliquot.learn.demand.model import ChoiceSettings, DemandModel
from aliquot.learn.demand.series import pinball
from aliquot.learn.demand.stage_results import CHOICES
from aliquot.sim.importers.azure_functions import OWNERS_500, MinuteCounts, read_minute_counts
from aliquot.sim.importers.azure_functions_1000 import day_1000
from aliquot.sim.importers.azure_llm import read_azure_llm
from aliquot.sim.importers.files import Files, needed_files
from aliquot.sim.importers.helios import FOLDER as HELIOS_FOLDER
from aliquot.sim.importers.helios import JOINED as HELIOS_FILE
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.importers.servegen import FOLDER as SERVEGEN_FOLDER
from aliquot.sim.importers.servegen import JOINED as SERVEGEN_FILE
from aliquot.sim.input_files import read_rows
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_least, at_most

HORIZONS = (1, 5, 15, 60)  # steps
MIN_CALLS = 30  # of a function in the sample
MAX_SERIES, MAX_QUICK_SERIES = 150, 40
MAX_STEPS, MAX_QUICK_STEPS = 3000, 800  # of a series, the newest

MIN_COVERAGE, MAX_COVERAGE = 88, 92  # %
MAX_RATIO = {"Azure, 500 functions": 0.9, "Azure, 1000 functions": 0.9}
MAX_RATIO_OTHERS = 1.01

Series = dict[str, list[float]]


class DemandResult(Struct, frozen=True):
    """The second half of all series of a set at one horizon."""

    set_name: str
    steps: int
    coverage: float  # of the chosen candidate's intervals, ties by draw
    series_within: float  # part of the series with 88 to 92 %
    chosen: float  # weighted quantile loss
    losses: dict[str, float]  # of each candidate for all series
    hindsight: float  # of the candidate that was best for each series, as nobody knew before
    largest: float  # part of the chosen's loss that comes from one series

    @property
    def best_simple(self) -> str:
        """Return the single candidate with the least loss, blends aside."""
        return min(CANDIDATES, key=self.losses.__getitem__)

    @property
    def ratio(self) -> float:
        return self.chosen / self.losses[self.best_simple]


def azure_500(data: Path) -> Series:
    return _minutes(read_minute_counts(data, OWNERS_500))


def azure_1000(data: Path) -> Series:
    return _minutes(read_minute_counts(data, day_1000(data)))


def _minutes(counted: Sequence[MinuteCounts]) -> Series:
    called = [each for each in counted if sum(each.calls) >= MIN_CALLS]
    return {each.function: [float(count) for count in each.calls] for each in called}


def servegen(data: Path) -> Series:
    """Read the call rates of clients of served models, by window."""
    found: Series = {}
    for row in read_rows(data / SERVEGEN_FOLDER / SERVEGEN_FILE, ("model", "client", "rate_rps"), None):
        found.setdefault(f"{row.text('model')}/{row.text('client')}", []).append(row.number("rate_rps", "a rate"))
    return {name: values for name, values in found.items() if sum(values) > 0}


def helios(data: Path) -> Series:
    """Read the GPUs that run jobs of each virtual cluster, by minute."""
    found: Series = {}
    for row in read_rows(data / HELIOS_FOLDER / HELIOS_FILE, ("vc", "running_gpu_num"), None):
        found.setdefault(row.text("vc"), []).append(row.number("running_gpu_num", "a number"))
    return found


def azure_llm(data: Path) -> Series:
    """Count the calls of two language models by second."""
    found: Series = {}
    for arrival in read_azure_llm(ImportRequest(data)).arrivals:
        counts = found.setdefault(arrival.function, [])
        counts.extend([0.0] * (int(arrival.time_s) + 1 - len(counts)))
        counts[int(arrival.time_s)] += 1
    return found


NEEDED: list[list[Files]] = [
    [(f"{SERVEGEN_FOLDER}/{SERVEGEN_FILE}",)],
    [(f"{HELIOS_FOLDER}/{HELIOS_FILE}",)],
    needed_files("azure_llm", ImportRequest(Path())),
]  # files of the sets beside the samples of Azure Functions
SETS: dict[str, Callable[[Path], Series]] = {
    "Azure, 500 functions": azure_500,
    "Azure, 1000 functions": azure_1000,
    "ServeGen": servegen,
    "Helios": helios,
    "Azure LLM, 1 s": azure_llm,
}


class _Sums:
    """The sums of one horizon."""

    def __init__(self) -> None:
        self.values = self.chosen = 0.0
        self.losses = dict.fromkeys((*CANDIDATES, BLEND), 0.0)
        self.outside: dict[str, list[bool]] = {}  # by series
        self.by_series: dict[str, dict[str, float]] = {}  # losses of each candidate
        self.chosen_by_series: dict[str, float] = {}


def read_set(name: str, data: Path, *, quick: bool) -> Series:
    """Return the newest values of some series of a set."""
    series = SETS[name](data)
    most = MAX_QUICK_SERIES if quick else MAX_SERIES
    every = max(1, len(series) // most)
    longest = MAX_QUICK_STEPS if quick else MAX_STEPS
    return {key: values[-longest:] for key, values in list(series.items())[::every][:most]}


def first_halves(series: Series) -> Series:
    return {key: values[: len(values) // 2] for key, values in series.items()}


def choose_settings(sets: Mapping[str, Series], on_step: Callable[[str], None]) -> ChoiceSettings:
    """Return the settings with the least mean ratio to the best simple candidate in the first halves of all sets."""
    means = []
    for choice in CHOICES:
        on_step(f"settings: {describe(choice)}")
        ratios = [
            result.ratio
            for name, series in sets.items()
            for result in measure_demand(name, first_halves(series), DemandModel(choice))
        ]
        means.append(geometric_mean(ratios))
    return CHOICES[means.index(min(means))]


def describe(choice: ChoiceSettings) -> str:
    return f"memory {choice.memory:g}, power of the blend {choice.blend_power:g}"


def measure_demand(name: str, series: Series, model: DemandModel) -> list[DemandResult]:
    """Forecast each series step by step. Learned from its first half on, measured in its second half."""
    chosen = list(series.items())
    sums = {steps: _Sums() for steps in HORIZONS}
    forecaster: DemandForecaster[str] = DemandForecaster(HORIZONS, model=model)
    models: dict[str, list[dict[int, str]]] = {key: [] for key, _ in chosen}
    for step in range(
        max(len(values) for _, values in chosen)
    ):  # side by side, as on a server, so that classes are learned from all
        for key, values in chosen:
            if step < len(values):
                _add(forecaster, key, step, values[step], models[key], sums, measured=2 * step >= len(values))
    return [_result(name, steps, found) for steps, found in sums.items()]


def _add(
    forecaster: DemandForecaster[str],
    key: str,
    step: int,
    value: float,
    models: list[dict[int, str]],
    sums: dict[int, _Sums],
    *,
    measured: bool,
) -> None:
    made = forecaster.observe(key, step, value)
    models.append({steps: forecaster.model_of(key, steps) for steps in HORIZONS})
    if not measured:
        return
    for steps, by_candidate in made.items():
        found = sums[steps]
        found.values += value
        for name, scored in by_candidate.items():
            loss = 2 * pinball(value, scored.band)
            found.losses[name] += loss
            of_series = found.by_series.setdefault(key, {})
            of_series[name] = of_series.get(name, 0.0) + loss
        own = by_candidate[models[step - steps][steps]]
        loss = 2 * pinball(value, own.band)
        found.chosen += loss
        found.chosen_by_series[key] = found.chosen_by_series.get(key, 0.0) + loss
        if own.outside is not None:
            found.outside.setdefault(key, []).append(own.outside)


def _result(name: str, steps: int, sums: _Sums) -> DemandResult:
    outside = [each for series in sums.outside.values() for each in series]
    covered = [1 - sum(series) / len(series) for series in sums.outside.values()]
    within = sum(0.88 <= part <= 0.92 for part in covered) / len(covered)  # noqa: PLR2004 - the goal
    total = sums.values or 1.0
    losses = {candidate: loss / total for candidate, loss in sums.losses.items()}
    hindsight = sum(min(of_series.values()) for of_series in sums.by_series.values())
    largest = max(sums.chosen_by_series.values()) / (sums.chosen or 1.0)
    coverage = 1 - sum(outside) / len(outside)
    return DemandResult(name, steps, coverage, within, sums.chosen / total, losses, hindsight / total, largest)


def demand_goals(name: str, results: Sequence[DemandResult]) -> list[Goal]:
    """Return the goals of one set, each at its worst horizon."""
    own = [result for result in results if result.set_name == name]
    coverages = [PERCENT * result.coverage for result in own]
    ratio = max(result.ratio for result in own)
    wanted = MAX_RATIO.get(name, MAX_RATIO_OTHERS)
    return [
        at_least(f"{name}: 90 % intervals cover, lowest horizon", min(coverages), MIN_COVERAGE, "%"),
        at_most(f"{name}: 90 % intervals cover, highest horizon", max(coverages), MAX_COVERAGE, "%"),
        at_most(f"{name}: loss of the chosen against the best simple candidate, worst horizon", ratio, wanted, "times"),
    ]


def demand_table(results: Sequence[DemandResult], choice: ChoiceSettings) -> ResultTable:
    """Return the table of all sets and horizons."""
    columns = [
        "set", "steps ahead", "coverage, %", "series within, %", "chosen", "best simple", "its loss", "ratio",
        "hindsight, ratio", "largest series, %",
    ]  # fmt: skip
    rows: list[list[str | float | None]] = [
        [
            one.set_name, one.steps, PERCENT * one.coverage, PERCENT * one.series_within, one.chosen, one.best_simple,
            one.losses[one.best_simple], one.ratio, one.hindsight / one.losses[one.best_simple],
            PERCENT * one.largest,
        ]
        for one in results
    ]  # fmt: skip
    title = (
        "Forecasts of demand: weighted quantile loss and coverage, the second half, under the settings that were best "
        f"in the first halves ({describe(choice)})"
    )
    return ResultTable(title, columns, rows, "recorded series, nothing runs")
