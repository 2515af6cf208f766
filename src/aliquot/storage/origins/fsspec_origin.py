"""Origins that fsspec opens: object stores, SFTP, SMB, memory and others. Only this module uses fsspec."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aliquot.core.errors import AliquotError
from aliquot.storage.errors import AbsentError, ChangedError, OriginError
from aliquot.storage.origins.base import Origin
from aliquot.storage.origins.manifest import read_manifest
from aliquot.storage.origins.options import option_values
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

# The drivers' names for a value that changes with the content. The first that exists is used.
VERSIONS = (
    *("etag", "ETag", "VersionId", "generation", "md5", "md5Checksum", "content_hash", "checksum"),
    *("sha", "blob_id", "hex", "CRC"),
)
TIMES = (
    *("mtime", "LastModified", "last_modified", "updated", "modified", "modify", "modificationTime", "modifiedTime"),
    *("modified_at", "server_modified", "created"),
)
# Packages whose name differs from their module's.
PACKAGES = {"aiohttp": "fsspec[http]", "smbclient": "smbprotocol"}


class _FsspecDriver(NamedTuple):
    files: Any  # an fsspec file system, which has no types
    root: str


class FsspecOrigin(Origin):
    """An origin with the options of its driver, and `manifest` (its name below the root)."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        super().__init__(url, options)
        self._url = url
        self._values = option_values(options)
        self._manifest = str(self._values.pop("manifest", ""))
        self._cached_driver: _FsspecDriver | None = None
        self._lock = Lock()

    @property
    def _driver(self) -> _FsspecDriver:
        """The driver, made at its first use because some drivers connect then."""
        with self._lock:
            if self._cached_driver is None:
                self._cached_driver = _driver(self._url, self._values, self)
            return self._cached_driver

    @property
    def link(self) -> str:
        parts = urlsplit(self.shown_url)
        return f"{parts.scheme} {parts.hostname or ''}"

    def check(self) -> None:
        with self._calling("cannot be listed"):
            if not self._driver.files.exists(self._driver.root):
                raise OriginError(f"{self.shown_url}: is not there")

    def files(self) -> Iterator[Listed]:
        with self._calling("cannot be listed"):
            if self._manifest:
                with self._driver.files.open(self._full(self._manifest), "r") as lines:
                    yield from read_manifest(lines.readline, self.shown_url)
                return
            root = self._driver.root.rstrip("/") + "/"
            # Errors are raised: if they were skipped, an outage would look like a dataset without files.
            for _, _, found in self._driver.files.walk(self._driver.root, detail=True, on_error="raise"):
                for about in found.values():
                    path = str(about["name"]).removeprefix("/" if root == "/" else root)
                    if isinstance(about.get("size"), int):
                        yield _listed(path, about)

    def stat(self, path: str) -> Listed:
        with self._calling(f"{path} cannot be looked up", path):
            about = self._driver.files.info(self._full(path))
            if about.get("type") != "file":
                raise AbsentError(f"{self.shown_url}: {path} is not a file")
            if not isinstance(about.get("size"), int):
                raise OriginError(f"{self.shown_url}: {path}: the driver does not say how large it is")
            listed = _listed(path, about)
            if not listed.version:
                raise OriginError(
                    f"{self.shown_url}: {path}: the driver tells neither a version nor a time of it, "
                    "so that a change would not be noticed"
                )
            return listed

    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        with self._calling(f"{listed.path} cannot be read", listed.path):
            data = self._driver.files.cat_file(self._full(listed.path), start=offset, end=offset + length)
        if not isinstance(data, bytes) or len(data) != length:
            raise OriginError(f"{self.shown_url}: {listed.path}: the answer was cut off")
        yield memoryview(data)

    def confirm(self, listed: Listed) -> None:
        # Drivers do not report the version of the bytes. If the file has not changed, they are of its version.
        if self.stat(listed.path).version != listed.version:
            raise ChangedError(f"{self.shown_url}: {listed.path} has changed")

    def _full(self, path: str) -> str:
        return f"{self._driver.root.rstrip('/')}/{check_path(path)}"

    @contextmanager
    def _calling(self, doing: str, path: str = "") -> Iterator[None]:
        try:
            yield
        except AliquotError:
            raise
        except FileNotFoundError as error:
            if path:
                raise AbsentError(f"{self.shown_url}: has no file {path}") from error
            raise self.failed(doing, error) from error
        except Exception as error:  # drivers raise errors of any type
            raise self.failed(doing, error) from error


def _driver(url: str, values: dict[str, object], origin: Origin) -> _FsspecDriver:
    core = import_module("fsspec.core")
    # A driver's cache of directories would hide a changed file.
    fresh: dict[str, object] = {"use_listings_cache": False, "skip_instance_cache": True}
    try:
        files, root = core.url_to_fs(url, **(fresh | values))
    except ImportError as error:
        raise OriginError(f"{origin.shown_url}: {_needed(url, error)}") from error
    except Exception as error:
        raise origin.failed("cannot be opened", error) from error
    return _FsspecDriver(files, str(root))


def _needed(url: str, error: ImportError) -> str:
    scheme = url.partition("://")[0].rpartition("::")[2]
    known = import_module("fsspec.registry").known_implementations.get(scheme, {})
    module = getattr(error.__cause__, "name", None) or str(known.get("class", "")).partition(".")[0]
    package = PACKAGES.get(module, module)
    return f"{scheme}:// needs a package that is not installed: pip install '{package}'"


def _listed(path: str, about: Mapping[str, Any]) -> Listed:
    tag = next((str(about[name]) for name in VERSIONS if about.get(name)), "")
    when = next((about[name] for name in TIMES if about.get(name) not in {None, ""}), None)
    version = f"{tag or when}-{about['size']:x}" if tag or when is not None else ""
    return Listed(path, about["size"], version, mtime_s=_time(when))


def _time(when: object) -> float:
    if isinstance(when, datetime):
        return when.timestamp()
    return float(when) if isinstance(when, int | float) else 0.0
