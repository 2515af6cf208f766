"""A directory on a web server: files by range requests, names from its listing pages or from a manifest.

fsspec is not used here: it reports a server that is down as a missing file, and a server without ranges sends it the
whole file for each range. This origin checks that every response has the requested range and version.
"""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from threading import Lock
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError
from aliquot.storage.origins.base import CopyProgress, Origin
from aliquot.storage.origins.connections import CONNECTION_ERRORS, ConnectionPool, OriginResponse
from aliquot.storage.origins.manifest import read_manifest
from aliquot.storage.origins.options import option_values
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

STAT_THREADS = 8  # listing pages have no sizes, so each file is looked up
MAX_PAGES = 100_000
MAX_REMEMBERED = 100_000  # files whose support for ranges is remembered
MAX_PAGE_BYTES = 256 * MIB
PAUSE_INTERVAL_S = 0.02
SETTLED_S = 1.1  # Last-Modified has whole seconds
UNVERSIONED = "unnamed-"  # begins the version of a file for which the server sends none
OK, PARTIAL, OUT_OF_RANGE, GONE = 200, 206, 416, (404, 410)


class HttpOrigin(Origin):
    """An origin with the options `manifest` (its name below the root), `headers`, `username` and `password`."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        super().__init__(url, options)
        values = option_values(options)
        self._manifest = str(values.pop("manifest", ""))
        headers = values.pop("headers", {})
        user, password = str(values.pop("username", "")), str(values.pop("password", ""))
        if values or not isinstance(headers, dict):
            raise InputError(f"options {', '.join(values)}: http takes manifest, headers, username and password")
        parts = urlsplit(url)
        self._query = f"?{parts.query}" if parts.query else ""
        address = parts.netloc.rpartition("@")[2]
        self._root = urlunsplit((parts.scheme, address, parts.path.rstrip("/") + "/", "", ""))
        self._ranged: dict[str, bool] = {}  # by path: whether the server sends parts of it
        self._lock = Lock()
        named = {str(name): str(value) for name, value in headers.items()}
        self._connections = ConnectionPool(named, user or parts.username or "", password or parts.password or "")

    @property
    def link(self) -> str:
        return f"host {urlsplit(self.shown_url).hostname}"

    def check(self) -> None:
        with self._request("GET", self._manifest, "cannot be listed"):
            pass

    def files(self) -> Iterator[Listed]:
        if self._manifest:
            with self._request("GET", self._manifest, "the manifest cannot be read") as response:
                yield from read_manifest(response.line, self.shown_url)
            return
        with ThreadPoolExecutor(STAT_THREADS, "listing") as pool:
            for page in self._pages():
                for listed in pool.map(self._listed_or_none, page):
                    if listed is not None:
                        yield listed

    def stat(self, path: str) -> Listed:
        listed = self._stat(path)
        age_s = time.time() - listed.mtime_s
        if 0 <= age_s < SETTLED_S:
            time.sleep(SETTLED_S - age_s)
            listed = self._stat(path)
        # A file without a version gets a new one at each lookup, so that it is transferred again.
        return listed if listed.version else replace(listed, version=f"{UNVERSIONED}{time.time_ns():x}")

    def _stat(self, path: str) -> Listed:
        with self._request("HEAD", check_path(path), f"{path} cannot be looked up") as response:
            listed = _listed(path, response)
            self._remember(path, is_ranged=response.header("Accept-Ranges") == "bytes" and bool(listed.version))
            return listed

    def ranged(self, listed: Listed) -> bool:
        if listed.path not in self._ranged:
            self.stat(listed.path)
        return self._ranged.get(listed.path, False)

    def _remember(self, path: str, *, is_ranged: bool) -> None:
        with self._lock:
            self._ranged[path] = is_ranged
            if len(self._ranged) > MAX_REMEMBERED:
                del self._ranged[next(iter(self._ranged))]

    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        wanted = {"Range": f"bytes={offset}-{offset + length - 1}"}
        with self._request("GET", check_path(listed.path), f"{listed.path} cannot be read", wanted) as response:
            _check_version(listed, response, self.shown_url)
            if response.status != PARTIAL:
                self._remember(listed.path, is_ranged=False)
                raise OriginError(f"{self.shown_url}: the server sends no ranges of {listed.path}, as it said it would")
            if not response.header("Content-Range").startswith(f"bytes {offset}-{offset + length - 1}/"):
                raise OriginError(f"{self.shown_url}: the server sends another range of {listed.path} than requested")
            for piece in response.pieces(length):
                length -= len(piece)
                yield piece
        if length:
            raise OriginError(f"{self.shown_url}: {listed.path}: the answer was cut off")

    def confirm(self, listed: Listed) -> None:
        # A response has the version of its start: a file written during the transfer has another one now.
        now = self.stat(listed.path)
        is_named = not (listed.version.startswith(UNVERSIONED) and now.version.startswith(UNVERSIONED))
        if now.size != listed.size or (is_named and now.version != listed.version):
            raise ChangedError(f"{self.shown_url}: {listed.path} has changed")

    def copy(self, listed: Listed, target: Path, may_continue: CopyProgress) -> None:
        with target.open("xb") as file:
            for piece in self._whole(listed):
                while not may_continue(file.tell()):
                    time.sleep(PAUSE_INTERVAL_S)
                file.write(piece)
            if file.tell() != listed.size:
                raise OriginError(f"{self.shown_url}: {listed.path}: the answer was cut off")

    def _whole(self, listed: Listed) -> Iterator[memoryview]:
        with self._request("GET", check_path(listed.path), f"{listed.path} cannot be read") as response:
            _check_version(listed, response, self.shown_url)
            yield from response.pieces(listed.size)

    def close(self) -> None:
        self._connections.close()

    @contextmanager
    def _request(
        self, method: str, path: str, doing: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[OriginResponse]:
        address = urljoin(self._root, quote(path)) + self._query
        try:
            with self._connections.request(method, address, headers or {}) as response:
                if response.status in GONE and path:
                    raise AbsentError(f"{self.shown_url}: has no file {path}")
                if response.status == OUT_OF_RANGE:
                    raise ChangedError(f"{self.shown_url}: {path} has changed")
                if response.status not in {OK, PARTIAL}:
                    raise OriginError(f"{self.shown_url}: {doing}: the server answers {response.status}")
                yield response
        except CONNECTION_ERRORS as error:
            raise self.failed(doing, error) from error

    def _pages(self) -> Iterator[list[str]]:
        """Yield the files of each listing page, breadth first."""
        waiting, seen, pages = [""], {""}, 0
        while waiting:
            pages += 1
            directory = waiting.pop(0)
            with self._request("GET", directory, f"{directory or 'the root'} cannot be listed") as response:
                links = _links(response.read_all(MAX_PAGE_BYTES).decode(errors="replace"))
            found = [path for link in links if (path := self._below(directory, link)) is not None]
            fresh = [path for path in dict.fromkeys(found) if path not in seen]
            seen.update(fresh)
            waiting += [path for path in fresh if path.endswith("/")]
            if pages + len(waiting) > MAX_PAGES:
                raise OriginError(f"{self.shown_url}: its pages lead on without an end; give a manifest")
            yield [path for path in fresh if not path.endswith("/")]

    def _below(self, directory: str, link: str) -> str | None:
        """Return the path that a link names if it is in this directory, else None."""
        base = urljoin(self._root, quote(directory))
        target = urljoin(base, link).partition("#")[0].partition("?")[0]
        if not target.startswith(base) or target == base:
            return None
        name = unquote(target[len(base) :])
        try:
            check_path(directory + name.removesuffix("/"))
        except PathError:
            return None
        return None if "/" in name.removesuffix("/") else directory + name

    def _listed_or_none(self, path: str) -> Listed | None:
        try:
            return self._stat(path)
        except AbsentError:
            return None


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _links(page: str) -> list[str]:
    parser = _LinkParser()
    parser.feed(page)
    parser.close()
    return parser.found


def _listed(path: str, response: OriginResponse) -> Listed:
    size = response.header("Content-Length")
    if not size.isdecimal():
        raise OriginError(f"{path}: the server does not say how large it is")
    return Listed(path, int(size), _version(response, int(size)), mtime_s=_time(response.header("Last-Modified")))


def _time(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return 0.0


def _version(response: OriginResponse, size: int) -> str:
    """Return a version from the ETag or the time; empty if the server sends neither."""
    tag, when = response.header("ETag"), response.header("Last-Modified")
    return tag or (f"{when}-{size:x}" if when else "")


def _check_version(listed: Listed, response: OriginResponse, where: str) -> None:
    total = response.header("Content-Range").rpartition("/")[2] or response.header("Content-Length")
    expected = "" if listed.version.startswith(UNVERSIONED) else listed.version
    if not total.isdecimal() or int(total) != listed.size or _version(response, listed.size) != expected:
        raise ChangedError(f"{where}: {listed.path} has changed")
