"""The interface of the parts of the benchmark `slo`, and their sizes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import Goal, ResultTable

SEED = 7  # settings were chosen with seeds from 100 on


class SloSizes(Struct, frozen=True):
    """The amount of work of each part."""

    data: Path
    network_calls: int = 12_000  # per cell
    network_lanes: tuple[int, ...] = (2, 4)
    instances: int = 200  # per group
    broken_calls: int = 40_000
    flows_calls: int = 60_000
    tenants_s: float = 20
    decisions: int = 5000
    live_s: float = 60  # of overload
    live_rounds: int = 5  # of each comparison on a real server
    live_round_s: float = 3


def quick_sizes(data: Path) -> SloSizes:
    return SloSizes(
        data,
        network_calls=3000,
        network_lanes=(2,),
        instances=60,
        broken_calls=10_000,
        flows_calls=10_000,
        tenants_s=5,
        decisions=1000,
        live_s=10,
        live_rounds=2,
        live_round_s=2,
    )


class SloPart(Protocol):
    """A part of the benchmark with goals, tables and panels of its own."""

    name: str
    steps: int

    def run(self, on_step: Callable[[str], None]) -> None: ...

    def goals(self) -> Sequence[Goal]: ...

    def tables(self) -> Sequence[ResultTable]: ...

    def panels(self) -> Sequence[PlotPanel]: ...
