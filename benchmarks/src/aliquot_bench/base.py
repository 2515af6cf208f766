"""What a benchmark is asked, and what it must be able to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from aliquot_bench.result import BenchResult


class BenchRequest(Struct, frozen=True):
    data: Path  # the folder that holds a folder for each trace
    quick: bool = False


class Bench(Protocol):
    needs_data: bool  # whether it is nothing without recorded traces
    steps: int  # how many a run takes, for the progress bar

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        """Measure; `on_step` is told what comes next, before each step."""
        ...

    def draw(self, path: Path) -> None:
        """The picture of what was measured."""
        ...
