"""What the fabric speaks of: datasets, their files, and who opened which."""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class FileKey(NamedTuple):
    """One file of one dataset. The path is relative, with `/`, and never climbs: `check_path` has seen to it."""

    dataset: str
    path: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.path}"


class Listed(Struct, frozen=True):
    """A file as its origin tells of it. Another version is another file: what is cached of the old one is not it."""

    path: str
    size: int
    version: str  # etag, or mtime and size: whatever changes when the content does
    checksum: str = ""  # `md5:…` or `sha256:…` where the origin offers one; empty: it does not
    mtime_s: float = 0  # when it was last changed, where the origin tells; for people, `version` decides


class Dataset(Struct, frozen=True):
    """A named root at an origin. The operator adds it; it is shown to all tenants, or to those that are named."""

    name: str
    url: str  # whatever fsspec opens, a path, or rsync://host/module/path
    options: dict[str, str] = {}  # the origin's own, secrets among them: their values are never told to anyone
    tenants: tuple[str, ...] | None = None  # None: all; empty: nobody, for those that were named are gone
    created: int = 0  # milliseconds of the epoch

    def is_shown_to(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants


class Found(StrEnum):
    """What an open found in the node's cache."""

    CACHED = "cached"  # there, from an earlier use or by `warm`
    PREFETCHED = "prefetched"  # there, or on its way, because it was predicted
    FETCHED = "fetched"  # not there: it was waited for


class Access(Struct, frozen=True):
    """One open of a file through a view."""

    time_s: float  # of the epoch
    tenant: str
    session: str  # the platform's, else made of the tenant and function; empty: none
    function: str
    invocation: str
    dataset: str
    path: str
    size: int
    operation: str  # open; later others
    waited_s: float
    found: Found
    user: str = ""  # of the session, as whoever began it said; empty: nobody said


class Likely(Struct, frozen=True):
    """A file that is expected to be opened soon."""

    dataset: str
    path: str
    size: int
    probability: float
