"""What an origin offers: which files there are, and bytes of one version of one of them, or an error that says why."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from threading import local
from typing import TypeAlias

from aliquot.storage.addresses import PLACE_OPTIONS, place, secrets_in, without_secrets
from aliquot.storage.errors import OriginError
from aliquot.storage.origins.options import secret_texts
from aliquot.storage.records import Listed

CopyProgress: TypeAlias = Callable[[int], bool]  # told the bytes so far; False: pause; raises when it is to stop

MAX_REASON_CHARACTERS = 300
PIECE_BYTES = 1 << 18
_own = local()


def thread_buffer() -> memoryview:
    """The thread's buffer for pieces: fresh memory for each of them costs more than to fill it."""
    buffer: memoryview | None = getattr(_own, "buffer", None)
    if buffer is None:
        buffer = _own.buffer = memoryview(bytearray(PIECE_BYTES))
    return buffer


class Origin(ABC):
    """Thread-safe. Every error is a `StorageError` whose text holds no secret.

    What was read and confirmed is of the version that was asked for: who puts chunks together never mixes two.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.shown_url = without_secrets(url)
        told = {url, *secrets_in(url), *secret_texts(options)} - {self.shown_url, *self.shown_url.split("::"), ""}
        self._secrets = sorted(told, key=len, reverse=True)
        where = [place(url), *(f"{name}={options[name]}" for name in PLACE_OPTIONS if name in options)]
        self.identity = sha256("\0".join(where).encode()).hexdigest()[:16]  # another one has other files

    may_be_unmounted = False  # then it looks as if all its files had gone

    @property
    @abstractmethod
    def link(self) -> str:
        """What its transfers share with those of other origins: a host, a disk."""

    @abstractmethod
    def check(self) -> None:
        """Whether it is there and may be read: raises if not. Quick."""

    @abstractmethod
    def files(self) -> Iterator[Listed]:
        """All of them, as they come. A version may be empty here: then `stat` knows it."""

    @abstractmethod
    def stat(self, path: str) -> Listed: ...

    def ranged(self, listed: Listed) -> bool:
        """Whether parts of this file can be read; otherwise there is only `copy`."""
        return True

    def empty(self, listed: Listed, offset: int, length: int) -> bool:
        """Whether it is known, without a transfer, that there is nothing but zeros."""
        return False

    @abstractmethod
    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        """Exactly these bytes, as they come; a piece is good until the next one is asked for.

        They count once the last has come and the version is confirmed; `ChangedError` when it is there no more.
        """

    def read(self, listed: Listed, offset: int, length: int) -> bytes:
        """All of `pieces` at once."""
        return b"".join(bytes(piece) for piece in self.pieces(listed, offset, length))

    def copy(self, listed: Listed, target: Path, go: CopyProgress) -> None:
        """All of it into a file that is not there yet; asks `go` several times a second. As `pieces` otherwise."""
        raise OriginError(f"{self.shown_url}: {listed.path} is read in parts")

    @abstractmethod
    def confirm(self, listed: Listed) -> None:
        """Whether what was read until now is of this version: the file has not changed; `ChangedError` if it has."""

    def close(self) -> None:
        """Connections and the like are given back."""

    def failed(self, doing: str, cause: BaseException) -> OriginError:
        """An error for people: what was done and why it failed."""
        said = str(cause).encode(errors="backslashreplace").decode()  # programs and names of files may be no UTF-8
        reason = " ".join(said.split()) or type(cause).__name__
        return OriginError(f"{self.shown_url}: {doing}: {self._without_secrets(reason)[:MAX_REASON_CHARACTERS]}")

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text
