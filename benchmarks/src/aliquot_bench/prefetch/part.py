"""The interface of the benchmark's parts, and their sizes."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from aliquot.core.units import MB
from aliquot_bench.origin.link import ServedOrigin
from aliquot_bench.result import Goal, ResultTable

MIN_SESSIONS = 10  # sessions of one user alone that are enough to train a model


class PrefetchSizes(Struct, frozen=True):
    """The amount of work of each part."""

    users: int = 8
    session_bytes: int = 240 * MB
    training: int = 12  # sessions of each user to learn from
    leads_s: tuple[float, ...] = (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 8, 10)
    each_lead: int = 4  # sessions per lead time
    each_method: int = 8  # sessions per method
    epochs: int = 5
    epoch_files: int = 4
    concurrent_bytes: int = 48 * MB  # per session, when all users read at once
    alone: int = 8  # users that are also measured alone


QUICK = PrefetchSizes(
    users=4,
    session_bytes=120 * MB,
    training=10,
    leads_s=(0, 0.5, 1, 1.5, 2, 4, 10),
    each_lead=2,
    each_method=4,
    epochs=3,
    epoch_files=2,
    concurrent_bytes=30 * MB,
    alone=2,
)


class PrefetchPart(Protocol):
    """A part of the benchmark with goals and tables of its own."""

    name: str
    steps: int

    @property
    def files(self) -> dict[str, int]:
        """Return the sizes of the files that the origin must have, by path."""
        ...

    def run(self, link: ServedOrigin, on_step: Callable[[str], None]) -> None: ...

    def goals(self) -> Sequence[Goal]: ...

    def tables(self) -> Sequence[ResultTable]: ...
