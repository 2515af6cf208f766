"""What each part of the benchmark is, and how large each is made."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import Goal, ResultTable


class SharingSizes(Struct, frozen=True):
    """Of a run: long enough to mean something, short enough to be waited for."""

    repetitions: int = 3
    isolation_s: float = 6  # of each setting, once
    elastic_s: float = 3  # what the borrower's work takes on a whole device
    training_steps: int = 4000
    training_pairs: int = 8
    scaling_s: float = 1  # what the work takes on a whole device
    memory_s: float = 3
    weights_bytes: int = 550_000_000
    packing_calls: int = 2000
    packing_seeds: int = 2


QUICK = SharingSizes(
    repetitions=2,
    isolation_s=2,
    elastic_s=1.2,
    training_steps=1500,
    training_pairs=4,
    scaling_s=0.4,
    memory_s=2,
    packing_calls=800,
    packing_seeds=1,
)


class SharingPart(Protocol):
    name: str
    steps: int
    on_device: bool  # whether it needs slices that are enforced

    def run(self, on_step: Callable[[str], None]) -> str:
        """Measure. Returns what the server said that it cannot enforce; nothing when it can."""
        ...

    def goals(self) -> Sequence[Goal]: ...

    def tables(self) -> Sequence[ResultTable]: ...

    def panels(self) -> Sequence[PlotPanel]: ...
