"""The interface of the parts of the benchmark `kernels`, and their sizes."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import Goal, ResultTable


class KernelSizes(Struct, frozen=True):
    """The amount of work of each part."""

    pairs: int = 60  # of a call on the platform and one in a process
    short_pairs: int = 400  # of a call of a small graph and of an empty function
    halves_s: float = 20
    starts: int = 7
    simulated_s: float = 60
    simulated_seeds: int = 3
    clients: tuple[int, ...] = (1, 8, 16, 24, 28, 32, 40, 48)
    client_s: float = 12  # for each number of clients and policy
    policies: tuple[str, ...] = ("exclusive", "balance", "affinity", "fair_resident")


QUICK = KernelSizes(
    pairs=12,
    short_pairs=120,
    halves_s=8,
    starts=3,
    simulated_s=30,
    simulated_seeds=1,
    clients=(8, 28, 32),
    client_s=8,
    policies=("balance", "fair_resident"),
)


class KernelsPart(Protocol):
    """A part of the benchmark with goals, tables and panels of its own."""

    name: str
    steps: int

    def run(self, on_step: Callable[[str], None]) -> None: ...

    def goals(self) -> Sequence[Goal]: ...

    def tables(self) -> Sequence[ResultTable]: ...

    def panels(self) -> Sequence[PlotPanel]: ...


def exactly(name: str, value: float, goal: float) -> Goal:
    """Make a goal that a counter has to meet to the digit."""
    return Goal(name, value, goal, "exactly", value == goal)
