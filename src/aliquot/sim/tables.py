"""Comparison tables for the terminal."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rich.markup import escape
from rich.table import Table

from aliquot.config import PolicySettings
from aliquot.core.model import CPU
from aliquot.core.units import GIB
from aliquot.sim.engine import Scenario
from aliquot.sim.fabric.figures import DataFigures
from aliquot.sim.report import RunReport
from aliquot.tables import FittedTable

# Name, values, and the function that picks the best value.
Column: TypeAlias = tuple[str, list[float | None], Callable[[list[float]], float] | None]


def format_number(value: float | None) -> str:
    """Format a value with three significant digits."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - no decimals from 100 on


def comparison(runs: Sequence[RunReport], title: str) -> Table:
    """Make a table with one row per run and the best value of each column highlighted."""
    columns: list[Column] = [
        ("mean s", [run.latency_s.mean for run in runs], min),
        ("p50 s", [run.latency_s.p50 for run in runs], min),
        ("p95 s", [run.latency_s.p95 for run in runs], min),
        ("p99 s", [run.latency_s.p99 for run in runs], min),
        ("wait s", [run.wait_s.mean for run in runs], min),
        ("cold %", [100 * run.cold_rate for run in runs], min),
        ("swap-ins", [run.swap_ins for run in runs], min),
        ("moved GiB", [run.bytes_moved / GIB for run in runs], min),
        ("busy %", [100 * run.utilisation for run in runs], None),
        ("jain", [run.fairness.jain for run in runs], max),
        ("gap s", [run.fairness.max_gap_s for run in runs], min),
    ]
    if any(run.data is not None for run in runs):
        columns += _data_columns([run.data for run in runs])
    table = FittedTable(title=escape(title), title_justify="left", caption=None)
    table.add_column("policy")
    several_seeds = len({run.seed for run in runs}) > 1
    if several_seeds:
        table.add_column("seed", justify="right")
    for name, _, _ in columns:
        table.add_column(name, justify="right")
    for index, run in enumerate(runs):
        cells = [escape(run.policy), *([str(run.seed)] if several_seeds else [])]
        for _, values, best in columns:
            cell = format_number(values[index])
            known = [value for value in values if value is not None]
            if best is not None and len(runs) > 1 and known and values[index] == best(known):
                cell = f"[bold green]{cell}[/]"
            cells.append(cell)
        table.add_row(*cells)
    return table


def assumptions(scenario: Scenario, runs: Sequence[PolicySettings]) -> str:
    """Return what a simulation assumes about the machine, for the line above its tables."""
    devices = [each for each in scenario.devices if each.kind != CPU] or scenario.devices
    sizes = dict.fromkeys("unbounded" if each.memory_bytes is None else _gib(each.memory_bytes) for each in devices)
    slots = dict.fromkeys(str(each.concurrency) for each in devices)
    pools = dict.fromkeys(run.pool_slots for run in runs)
    curve = scenario.interference
    parts = [
        f"{len(devices)} device{'' if len(devices) == 1 else 's'}",
        f"memory {' or '.join(sizes)}",
        f"D = {' or '.join(slots)}",
        f"interference {'off' if curve is None else f'{curve.stretch(2):g} times for two calls'}",
        f"{'shared' if scenario.shared_bus else 'private'} bus",
        f"sharing {' or '.join(dict.fromkeys(run.sharing for run in runs))}",
        *(f"pool {f'of {size} sandboxes' if size else 'unbounded'}" for size in pools if size is not None),
        f"host memory {'unbounded' if scenario.host_memory_bytes is None else _gib(scenario.host_memory_bytes)}",
    ]
    if scenario.forecasting.source != "none":
        parts.append(f"calls forecast by {scenario.forecasting.source}")
    return ", ".join(parts)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.3g} GiB"


def _data_columns(figures: Sequence[DataFigures | None]) -> list[Column]:
    """Return the columns about the files that calls read."""
    hidden = [data.hidden if data else None for data in figures]
    return [
        ("data s", [data.data_s.mean if data else None for data in figures], min),
        ("hidden %", [None if share is None else 100 * share for share in hidden], max),
        ("wasted %", [100 * data.wasted if data else None for data in figures], min),
        ("link GiB", [data.moved_bytes / GIB if data else None for data in figures], min),
    ]
