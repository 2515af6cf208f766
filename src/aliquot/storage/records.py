"""The records of the storage fabric: datasets, their files, and accesses to them."""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class FileKey(NamedTuple):
    """One file of one dataset. The path has passed `check_path`."""

    dataset: str
    path: str

    def __str__(self) -> str:
        return f"{self.dataset}/{self.path}"


class Listed(Struct, frozen=True):
    """A file as its origin describes it. Another version counts as another file."""

    path: str
    size: int
    version: str  # ETag, or mtime and size: changes whenever the content changes
    checksum: str = ""  # `md5:…` or `sha256:…`; empty if the origin offers none
    mtime_s: float = 0  # last change, if the origin reports it; shown to people, `version` decides


class Dataset(Struct, frozen=True):
    """A named directory at an origin, added by the operator and shown to all tenants or to the listed ones."""

    name: str
    url: str  # a URL that fsspec opens, a path, or rsync://host/module/path
    options: dict[str, str] = {}  # for the origin; may hold secrets, so their values are never shown
    tenants: tuple[str, ...] | None = None  # None: all tenants; empty: no tenant, because the listed ones were removed
    created: int = 0  # milliseconds since the epoch

    def is_shown_to(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants


class Found(StrEnum):
    """The state of a file in the node's cache when it was opened."""

    CACHED = "cached"  # present from an earlier use or from `warm`
    PREFETCHED = "prefetched"  # present or being transferred because it was predicted
    FETCHED = "fetched"  # missing: the open waited for the transfer


class FileAccess(Struct, frozen=True):
    """One open of a file through a view."""

    time_s: float  # since the epoch
    tenant: str
    session: str  # id of the platform's session; empty if there is none
    function: str
    invocation: str
    dataset: str
    path: str
    size: int
    operation: str  # always "open" today
    waited_s: float
    found: Found
    user: str = ""  # the user named when the session began; empty if none was named


class Likely(Struct, frozen=True):
    """A file that is expected to be opened soon."""

    dataset: str
    path: str
    size: int
    probability: float
