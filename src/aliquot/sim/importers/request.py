"""What an importer is asked, and what it gives."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Arrival


class ImportRequest(Struct, frozen=True):
    """Which part of a trace, and with what profiles. Seconds count from the trace's own beginning."""

    data: Path  # the folder that holds a folder for each trace
    profile: str | None = None  # None: the trace's usual one
    flows: int | None = None  # keep the busiest; None: all
    start_s: float = 0
    duration_s: float | None = None  # None: to the end, or as far as the importer says
    calls: int | None = None  # stop after so many
    seed: int = 0

    @property
    def end_s(self) -> float:
        return float("inf") if self.duration_s is None else self.start_s + self.duration_s


class ImportedTrace(NamedTuple):
    """Functions, and their calls as a stream: in order of time, the first at 0."""

    functions: dict[str, FunctionSpec]
    arrivals: Iterator[Arrival]


def refuse_profiles(request: ImportRequest, kind: str) -> None:
    """For traces that tell how long a call takes: other profiles would contradict them."""
    if request.profile not in {None, "own"}:
        raise InputError(f"--profile: {kind} has run times of its own, not '{request.profile}'; it takes own")
