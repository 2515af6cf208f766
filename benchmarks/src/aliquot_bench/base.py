"""The interface of a benchmark, and the options of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from aliquot_bench.result import BenchResult


class BenchRequest(Struct, frozen=True):
    """The options of one run."""

    data: Path  # folder with one folder per trace
    quick: bool = False
    before: Path | None = None  # the interpreter of an environment with an earlier version, for `latency`
    peers: tuple[str, ...] | None = None  # the other systems to measure; None: all


@runtime_checkable
class InstallsPeers(Protocol):
    """A benchmark that installs other systems, which may be left out."""

    def downloads(self) -> dict[str, int]:
        """Return the megabytes of disk that each system will take which is not installed yet."""
        ...


class Bench(Protocol):
    """A benchmark that runs once and can then draw its result."""

    assumed: str  # what its tables assume about interference, slots and memory
    needs_data: bool  # cannot run without recorded traces
    steps: int  # number of steps of a run, for the progress bar

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        """Measure and return the result. Call `on_step` with a description before each step."""
        ...

    def draw(self, path: Path) -> None:
        """Draw the result of the last run into a file."""
        ...
