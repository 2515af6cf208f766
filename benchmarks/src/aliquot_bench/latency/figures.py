"""The goals and tables computed from the samples: medians over the rounds, and ratios within a round."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from statistics import median

from msgspec import Struct

from aliquot_bench.latency.gateways import GatewayFigures
from aliquot_bench.latency.kinds import KindFigures
from aliquot_bench.latency.targets import CALLERS, LoadSample
from aliquot_bench.result import Goal, ResultTable, at_least, at_most, cell

BARE, OURS, BEFORE = "ASGI echo", "Aliquot", "Aliquot, before"
COLUMNS = [
    "",
    "version",
    "p50 ms, 1 caller",
    "p50 ms, 32",
    "p99 ms, 32",
    "requests/s, 32",
    "CPU µs each",
    "settings",
]

PLATFORM = (  # figures of Aliquot alone, with their names in the table
    ("one_per_second", "requests/s, 1 function, paths chosen in turn"),
    ("many_per_second", "requests/s, 100 functions, paths chosen in turn"),
    ("idle_mb", "server memory idle, MB"),
    ("loaded_mb", "server memory after the load, MB"),
    ("up_s", "start until /health answers, s"),
    ("cold_ms", "first call of a no-op, ms"),
    ("cold_init_ms", "of that the sandbox's start (initTime), ms"),
    ("torch_cold_ms", "first call of a function that imports torch, ms"),
    ("torch_init_ms", "of that the sandbox's start (initTime), ms"),
    ("torch_plain_ms", '`python -c "import torch"`, ms'),
)


class TargetResult(Struct):
    """The samples of a target. A target that failed or answered with errors has a reason instead of figures."""

    name: str
    settings: str
    version: str = ""
    is_peer: bool = False
    samples: dict[int, LoadSample] = {}  # by round
    reason: str = ""

    def add(self, number: int, sample: LoadSample) -> None:
        if sample.errors:
            self.reason = f"void: {sample.errors} of its answers were errors"
        self.samples[number] = sample

    @property
    def is_valid(self) -> bool:
        """Return whether the target has valid samples."""
        return bool(self.samples) and not self.reason


class PlatformFigures(Struct, frozen=True):
    """Figures of Aliquot alone. Those that could not be measured are None."""

    up_s: float | None = None
    idle_mb: float | None = None
    loaded_mb: float | None = None
    many_to_one: float | None = None  # throughput with 100 functions against 1
    one_per_second: float | None = None
    many_per_second: float | None = None
    cold_ms: float | None = None
    cold_init_ms: float | None = None
    torch_cold_ms: float | None = None
    torch_init_ms: float | None = None
    torch_plain_ms: float | None = None


Figure = Callable[[LoadSample], float]


def p50_one_caller(sample: LoadSample) -> float:
    return sample.one_caller.p50_ms


def p50_all_callers(sample: LoadSample) -> float:
    return sample.all_callers.p50_ms


def p99_all_callers(sample: LoadSample) -> float:
    return sample.all_callers.p99_ms


def per_second(sample: LoadSample) -> float:
    return sample.all_callers.per_second


def typical(measured: TargetResult, figure: Figure) -> float | None:
    """Return the median of a figure over the rounds."""
    return median(map(figure, measured.samples.values())) if measured.is_valid else None


def extremes(measured: TargetResult, figure: Figure) -> tuple[float, float]:
    """Return the smallest and the largest value of a figure over the rounds."""
    values = [figure(sample) for sample in measured.samples.values()]
    return min(values), max(values)


def _all_cpu_us(measured: TargetResult) -> list[float]:
    return [sample.cpu_us for sample in measured.samples.values() if sample.cpu_us is not None]


def _cpu_us(measured: TargetResult) -> float | None:
    known = _all_cpu_us(measured)
    return median(known) if known else None


def _with_spread(values: Sequence[float]) -> str | float | None:
    """Return the median, with the smallest and the largest value if there are several."""
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return values[0] if values else None
    return f"{cell(float(median(values)))} ({cell(float(min(values)))} to {cell(float(max(values)))})"


def load_of_others(targets: Sequence[TargetResult]) -> tuple[float, float] | None:
    """Return the median and the largest part of the machine that other processes used."""
    shares = [s.other_load for target in targets for s in target.samples.values() if s.other_load is not None]
    return (median(shares), max(shares)) if shares else None


def ratio(one: TargetResult | None, other: TargetResult | None, figure: Figure) -> float | None:
    """Return the median ratio over the rounds of both, in which the machine was in the same state for both."""
    if one is None or other is None or not (one.is_valid and other.is_valid):
        return None
    pairs = [(one.samples[number], other.samples[number]) for number in one.samples if number in other.samples]
    ratios = [figure(mine) / figure(theirs) for mine, theirs in pairs if figure(theirs)]
    return median(ratios) if ratios else None


def best_peer(targets: Sequence[TargetResult]) -> TargetResult | None:
    """Return the peer with the most requests per second."""
    return max(_peers(targets), key=lambda peer: typical(peer, per_second) or 0, default=None)


def fastest_peer(targets: Sequence[TargetResult]) -> TargetResult | None:
    """Return the peer that answers one caller fastest."""
    return min(_peers(targets), key=lambda peer: typical(peer, p50_one_caller) or inf, default=None)


def _peers(targets: Sequence[TargetResult]) -> list[TargetResult]:
    return [target for target in targets if target.is_peer and target.is_valid]


def _name(target: TargetResult | None) -> str:
    return target.name if target is not None else "none"


def goals(targets: Sequence[TargetResult], extras: PlatformFigures) -> list[Goal]:
    """Compare the figures with the goals."""
    named: Mapping[str, TargetResult] = {target.name: target for target in targets}
    ours, bare, best, fastest = named.get(OURS), named.get(BARE), best_peer(targets), fastest_peer(targets)
    spread = [p99_all_callers(sample) / p50_all_callers(sample) for sample in ours.samples.values()] if ours else []
    is_valid = ours is not None and ours.is_valid
    return [
        at_most("processor time of a call, all processes", _cpu_us(ours) if ours and is_valid else None, 80, "µs"),
        at_most("p50 with one caller, against the bare ASGI echo", ratio(ours, bare, p50_one_caller), 2, "times"),
        at_most(
            f"p50 with one caller, against the fastest peer ({_name(fastest)})",
            *(ratio(ours, fastest, p50_one_caller), 0.6, "times"),
        ),
        at_least(
            "requests/s with 32 callers, against the bare ASGI echo", ratio(ours, bare, per_second), 0.33, "times"
        ),
        at_least(
            f"requests/s with 32 callers, against the best peer ({_name(best)})",
            *(ratio(ours, best, per_second), 2.5, "times"),
        ),
        at_most("p99 with 32 callers, against its p50", median(spread) if is_valid else None, 3, "times"),
        at_least("requests/s of 100 warm functions, against 1", extras.many_to_one, 0.9, "times"),
        at_most("the server's memory, idle", extras.idle_mb, 65, "MB"),
        at_most("`aliquot up` until it answers", extras.up_s, 1, "s"),
        at_most("cold start of a no-op: the whole first call", extras.cold_ms, 7, "ms"),
        at_most("cold start with torch: the whole first call", extras.torch_cold_ms, 11, "ms"),
    ]


def tables(
    targets: Sequence[TargetResult],
    extras: PlatformFigures,
    title: str,
    kinds: Sequence[KindFigures] = (),
    before: PlatformFigures | None = None,
    gateways: Sequence[GatewayFigures] = (),
) -> list[ResultTable]:
    """Make the tables of the compared servers, of Aliquot alone, and of targets without valid samples.

    `before` has the figures of an earlier version of Aliquot, if one was measured.
    """
    figures = (p50_one_caller, p50_all_callers, p99_all_callers, per_second)
    rows: list[list[str | float | None]] = [
        [
            target.name,
            target.version,
            *(_with_spread([figure(sample) for sample in target.samples.values()]) for figure in figures),
            _with_spread(_all_cpu_us(target)),
            target.settings,
        ]
        for target in targets
        if target.is_valid
    ]
    left_out: list[list[str | float | None]] = [[t.name, t.version, t.reason] for t in targets if not t.is_valid]
    found = [ResultTable(title, COLUMNS, rows), _platform_table(extras, before)]
    if kinds:
        columns = ["", "p50 ms, 32", "p99 ms, 32", "requests/s, 32", "CPU µs each"]
        rates: list[list[str | float | None]] = [[one.kind, *_figures_of(one)] for one in kinds]
        found.append(ResultTable("Aliquot: kinds of warm calls", columns, rates))
    if gateways:
        found.append(gateway_table(gateways))
    return [*found, ResultTable("Left out", ["", "version", "why"], left_out)] if left_out else found


def gateway_table(figures: Sequence[GatewayFigures]) -> ResultTable:
    """Make the table of the processor time of a call by process."""
    columns = ["`--gateways`", "server µs", "gateway processes µs", "sandboxes µs", "all µs", "requests/s here"]
    columns.append("requests/s that the server's process allows")
    rows: list[list[str | float | None]] = [
        [
            str(one.gateways),
            one.server_us,
            one.gateways_us if one.gateways > 1 else None,
            *(one.others_us, one.all_us, one.per_second, one.most_per_second),
        ]
        for one in figures
    ]
    return ResultTable(f"Aliquot: processor time of a call by process, {CALLERS} callers", columns, rows)


def _platform_table(extras: PlatformFigures, before: PlatformFigures | None) -> ResultTable:
    """Make the table of memory and starts, with a column for the earlier version if there is one."""
    columns, shown = ["", "median"], [extras]
    if before is not None:
        columns, shown = [*columns, "before"], [*shown, before]
    rows: list[list[str | float | None]] = [[text, *(getattr(one, name) for one in shown)] for name, text in PLATFORM]
    return ResultTable("Aliquot: memory and starts", columns, rows)


def _figures_of(one: KindFigures) -> tuple[float | None, ...]:
    return one.p50_ms, one.p99_ms, one.per_second, one.cpu_us
