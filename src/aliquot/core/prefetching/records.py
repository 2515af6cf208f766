"""The prefetcher's records: audiences, the files they are expected to open, and each tenant's queue of them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

FileKey: TypeAlias = tuple[str, str]  # dataset and path
AudienceKey: TypeAlias = tuple[str, str]  # tenant and session, or `function/NAME` for calls without one

MAX_LOST_FETCHES = 1000  # fetches of lost nodes that are remembered

_WITHOUT_SESSION = "function/"


def audience_of(session: str | None, function: str) -> str:
    """Return the name of the audience: the session, or the function for calls without a session."""
    return session or f"{_WITHOUT_SESSION}{function}"


def function_of(audience: str) -> str | None:
    """Return the function whose calls without a session are the audience, or None if it is a session."""
    return audience.removeprefix(_WITHOUT_SESSION) if audience.startswith(_WITHOUT_SESSION) else None


class PrefetchFile:
    """A file that an audience is expected to open, or whose fetch has not ended yet."""

    __slots__ = ("cancelled", "charged_to", "fetch", "key", "size", "wanted_by")

    def __init__(self, key: FileKey, size: int) -> None:
        self.key = key
        self.size = size  # during a fetch, the size when the fetch began
        self.wanted_by: dict[AudienceKey, Audience] = {}
        self.fetch: int | None = None  # number of the fetch that is in flight
        self.charged_to: TenantQueue | None = None  # the tenant whose budget the fetch takes
        self.cancelled = False  # but its end has not been reported yet


class WantedFile(NamedTuple):
    """A file that an audience is expected to open."""

    file: PrefetchFile
    reason: str  # for people to read


class Audience:
    """A session, or a function's calls without one, with the files it is expected to open, most urgent first."""

    __slots__ = ("function", "next_reason", "queue", "requested_at", "session", "wants")

    def __init__(self, queue: "TenantQueue", session: str) -> None:
        self.queue = queue
        self.session = session
        self.function = ""  # called last
        self.requested_at: float | None = None  # time of a prediction request that is not answered yet
        self.next_reason: str | None = None  # why another prediction is needed after that one
        self.wants: dict[FileKey, WantedFile] = {}

    @property
    def key(self) -> AudienceKey:
        return (self.queue.tenant, self.session)

    def first(self) -> WantedFile | None:
        """Return the next file that is not being fetched, from a list no longer than a policy's choice."""
        for want in self.wants.values():
            if want.file.fetch is None:
                return want
        return None

    def in_flight(self) -> dict[FileKey, PrefetchFile]:
        """Return the files whose fetch is in flight and not cancelled."""
        return {
            key: want.file
            for key, want in self.wants.items()
            if want.file.fetch is not None and not want.file.cancelled
        }


class TenantQueue:
    """One tenant's audiences, which take turns, and the part of the budget that they use."""

    __slots__ = ("audiences", "bytes", "fetches", "tenant", "waiting")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.audiences: dict[str, Audience] = {}
        self.waiting: dict[str, Audience] = {}  # audiences that may have a file to fetch, the next one first
        self.bytes = self.fetches = 0  # in flight

    def first(self) -> tuple[Audience, WantedFile] | None:
        """Return the next audience in turn that has a file to fetch, and the file."""
        while self.waiting:
            session, audience = next(iter(self.waiting.items()))
            want = audience.first()
            if want is not None:
                return audience, want
            del self.waiting[session]
        return None


class FetchNumbers:
    """The numbers of fetches, which all nodes share, and the node of each fetch that is in flight."""

    def __init__(self) -> None:
        self.last = 0
        self.nodes: dict[int, str] = {}
        self.lost: dict[int, None] = {}  # fetches of lost nodes, whose end may still be reported

    def next(self, node: str) -> int:
        self.last += 1
        self.nodes[self.last] = node
        return self.last

    def forget(self, fetches: Iterable[int]) -> None:
        """Forget fetches whose node is lost."""
        for fetch in fetches:
            self.nodes.pop(fetch, None)
            self.lost[fetch] = None
        while len(self.lost) > MAX_LOST_FETCHES:
            del self.lost[next(iter(self.lost))]


class DatasetReaders:
    """Counts the functions of each tenant that read each dataset."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}  # number of functions by tenant and dataset

    def has_any(self, tenant: str) -> bool:
        return tenant in self._counts

    def reads(self, tenant: str, dataset: str) -> bool:
        return dataset in self._counts.get(tenant, ())

    def change(self, tenant: str, before: Sequence[str], after: Sequence[str]) -> list[str]:
        """Replace the datasets of one function, and return those that no function of the tenant reads any more."""
        counts = self._counts.setdefault(tenant, {})
        for dataset in dict.fromkeys(after):
            counts[dataset] = counts.get(dataset, 0) + 1
        unread = []
        for dataset in dict.fromkeys(before):
            counts[dataset] -= 1
            if not counts[dataset]:
                del counts[dataset]
                unread.append(dataset)
        if not counts:
            del self._counts[tenant]
        return unread
