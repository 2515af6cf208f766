"""What each part of the benchmark is, and how large each is made."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from aliquot.core.units import MB
from aliquot_bench.origin.link import OriginLink
from aliquot_bench.result import Goal, ResultTable

MIN_SESSIONS = 10  # sessions of one user alone, for a model to be made of them


class PrefetchSizes(Struct, frozen=True):
    """Of a run: long enough to mean something, short enough to be waited for."""

    users: int = 8
    session_bytes: int = 240 * MB
    training: int = 12  # sessions of each user, before anything is predicted
    leads_s: tuple[float, ...] = (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 8, 10)
    each_lead: int = 4  # sessions
    each_method: int = 8
    epochs: int = 5
    epoch_files: int = 4
    crowd_bytes: int = 48 * MB  # a session, when all users are at work at once
    alone: int = 8  # users that are measured by themselves, too


QUICK = PrefetchSizes(
    users=4,
    session_bytes=120 * MB,
    training=10,
    leads_s=(0, 0.5, 1, 1.5, 2, 4, 10),
    each_lead=2,
    each_method=4,
    epochs=3,
    epoch_files=2,
    crowd_bytes=30 * MB,
    alone=2,
)


class PrefetchPart(Protocol):
    name: str
    steps: int

    @property
    def files(self) -> dict[str, int]:
        """What it wants of the origin."""
        ...

    def run(self, link: OriginLink, on_step: Callable[[str], None]) -> None: ...

    def goals(self) -> Sequence[Goal]: ...

    def tables(self) -> Sequence[ResultTable]: ...
