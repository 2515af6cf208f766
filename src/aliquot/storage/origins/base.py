"""The interface of origins: list the files, and read bytes of one version of a file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from threading import local
from typing import TypeAlias

from aliquot.core.units import KIB
from aliquot.storage.addresses import PLACE_OPTIONS, place, secrets_in, without_secrets
from aliquot.storage.errors import OriginError
from aliquot.storage.origins.options import secret_texts
from aliquot.storage.records import Listed

CopyProgress: TypeAlias = Callable[[int], bool]  # gets the bytes copied so far; returns False to pause, raises to stop

MAX_REASON_CHARACTERS = 300
PIECE_BYTES = 256 * KIB
_own = local()


def thread_buffer() -> memoryview:
    """Return the thread's buffer for pieces. New memory for each piece would cost more than filling it."""
    buffer: memoryview | None = getattr(_own, "buffer", None)
    if buffer is None:
        buffer = _own.buffer = memoryview(bytearray(PIECE_BYTES))
    return buffer


class Origin(ABC):
    """An origin of files. Thread-safe. Every error is a `StorageError` whose text contains no secret.

    Bytes that were read and confirmed belong to the requested version, so a file never mixes two versions.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.shown_url = without_secrets(url)
        secrets = {url, *secrets_in(url), *secret_texts(options)} - {self.shown_url, *self.shown_url.split("::"), ""}
        self._secrets = sorted(secrets, key=len, reverse=True)
        where = [place(url), *(f"{name}={options[name]}" for name in PLACE_OPTIONS if name in options)]
        self.identity = sha256("\0".join(where).encode()).hexdigest()[:16]  # same place, same files

    may_be_unmounted = False  # all its files seem to be missing while it is not mounted

    @property
    @abstractmethod
    def link(self) -> str:
        """The host or disk that its transfers share with other origins."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the origin cannot be reached or read. Quick."""

    @abstractmethod
    def files(self) -> Iterator[Listed]:
        """Iterate over all files. A version may be empty here; `stat` finds it."""

    @abstractmethod
    def stat(self, path: str) -> Listed: ...

    def ranged(self, listed: Listed) -> bool:
        """Return whether parts of this file can be read. Otherwise only `copy` works."""
        return True

    def empty(self, listed: Listed, offset: int, length: int) -> bool:
        """Return whether this range is known to be all zeros without a transfer."""
        return False

    @abstractmethod
    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        """Yield exactly these bytes as they arrive. A piece is valid until the next one is requested.

        The bytes are valid after the last piece, when the version is confirmed. Raises `ChangedError`.
        """

    def read(self, listed: Listed, offset: int, length: int) -> bytes:
        """Return all `pieces` joined."""
        return b"".join(bytes(piece) for piece in self.pieces(listed, offset, length))

    def copy(self, listed: Listed, target: Path, may_continue: CopyProgress) -> None:
        """Copy the whole file to a new file and call `may_continue` several times a second. Raises as `pieces`."""
        raise OriginError(f"{self.shown_url}: {listed.path} is read in parts")

    @abstractmethod
    def confirm(self, listed: Listed) -> None:
        """Raise `ChangedError` unless the file still has this version."""

    def close(self) -> None:
        """Close connections and other resources."""

    def failed(self, doing: str, cause: BaseException) -> OriginError:
        """Return an error that tells people what failed and why."""
        text = str(cause).encode(errors="backslashreplace").decode()  # it may not be UTF-8
        reason = " ".join(text.split()) or type(cause).__name__
        return OriginError(f"{self.shown_url}: {doing}: {self._without_secrets(reason)[:MAX_REASON_CHARACTERS]}")

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text
