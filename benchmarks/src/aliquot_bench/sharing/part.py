"""The interface of the benchmark's parts, and their sizes."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import Goal, ResultTable


class SharingSizes(Struct, frozen=True):
    """The amount of work of each part."""

    repetitions: int = 3
    isolation_s: float = 6  # per setting and repetition
    elastic_s: float = 3  # duration of the borrower's work on a whole device
    training_steps: int = 4000
    training_pairs: int = 8
    scaling_s: float = 1  # duration of the work on a whole device
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
    """A part of the benchmark with goals, tables and panels of its own."""

    name: str
    steps: int
    on_device: bool  # needs enforced slices

    def run(self, on_step: Callable[[str], None]) -> str:
        """Measure, and return the reason why slices are not enforced, or an empty text."""
        ...

    def goals(self) -> Sequence[Goal]: ...

    def tables(self) -> Sequence[ResultTable]: ...

    def panels(self) -> Sequence[PlotPanel]: ...
