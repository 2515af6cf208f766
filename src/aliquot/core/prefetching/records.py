"""The prefetcher's own books: audiences, the files that they are expected to open, and each tenant's part of both."""

from typing import NamedTuple, TypeAlias

FileKey: TypeAlias = tuple[str, str]  # dataset and path
AudienceKey: TypeAlias = tuple[str, str]  # tenant and session, or `function/NAME` for calls without one


_WITHOUT_SESSION = "function/"


def audience_of(session: str | None, function: str) -> str:
    """Whose next file is predicted: a session's, or, where calls have none, a function's."""
    return session or f"{_WITHOUT_SESSION}{function}"


def function_of(audience: str) -> str | None:
    """The function, where the audience is its calls without a session."""
    return audience.removeprefix(_WITHOUT_SESSION) if audience.startswith(_WITHOUT_SESSION) else None


class File:
    """A file that somebody is expected to open, or that is still on its way though nobody is any more."""

    __slots__ = ("cancelled", "fetch", "key", "payer", "size", "wanters")

    def __init__(self, key: FileKey, size: int) -> None:
        self.key = key
        self.size = size  # while it is on its way: as it was when that began
        self.wanters: dict[AudienceKey, Audience] = {}
        self.fetch: int | None = None  # while it is on its way
        self.payer: Line | None = None  # whose part of the budget that takes
        self.cancelled = False  # though its end has not been told yet


class Want(NamedTuple):
    file: File
    reason: str  # in words for people


class Audience:
    """A session, or a function's calls without one: what it is expected to open, most urgent first."""

    __slots__ = ("again", "asked_at", "function", "line", "session", "wants")

    def __init__(self, line: "Line", session: str) -> None:
        self.line = line
        self.session = session
        self.function = ""  # that was called last
        self.asked_at: float | None = None  # for a prediction that has not come
        self.again: str | None = None  # why another is needed when it has
        self.wants: dict[FileKey, Want] = {}

    @property
    def key(self) -> AudienceKey:
        return (self.line.tenant, self.session)

    def first(self) -> Want | None:
        """The next that is not on its way. There are no more to look at than a policy chooses of one prediction."""
        for want in self.wants.values():
            if want.file.fetch is None:
                return want
        return None

    def under_way(self) -> dict[FileKey, File]:
        """What comes; what was cancelled would have to begin again."""
        return {
            key: want.file
            for key, want in self.wants.items()
            if want.file.fetch is not None and not want.file.cancelled
        }


class Line:
    """One tenant's audiences, in turn, and what of the budget is in use for them."""

    __slots__ = ("audiences", "bytes", "fetches", "tenant", "waiting")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.audiences: dict[str, Audience] = {}
        self.waiting: dict[str, Audience] = {}  # those that may have something to bring, whose turn it is first
        self.bytes = self.fetches = 0  # on their way

    def first(self) -> tuple[Audience, Want] | None:
        while self.waiting:
            session, audience = next(iter(self.waiting.items()))
            want = audience.first()
            if want is not None:
                return audience, want
            del self.waiting[session]
        return None
