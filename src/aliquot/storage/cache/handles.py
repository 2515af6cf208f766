"""Handles on files of the cache, as `base.FileHandle` describes them."""

from typing import Protocol, Self

from aliquot.storage.cache.futures import TransferFuture
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.transfer import TransferOrigin
from aliquot.storage.records import FileKey, Found, Listed


class HandleOwner(Protocol):
    """Reads for handles and takes them back."""

    def read(self, handle: "CacheFileHandle", offset: int, length: int) -> TransferFuture[bytes]: ...
    def give_back(self, entry: CacheEntry) -> None:
        """Note a closed handle, without waiting for a lock."""

    def settle(self) -> None:
        """Count the handles given back."""


class CacheFileHandle:
    """An open file. Its entry stays pinned until the handle is closed."""

    def __init__(
        self, entry: CacheEntry, origin: TransferOrigin, fd: int, found: Found, waited_s: float, owner: HandleOwner
    ) -> None:
        self.entry = entry
        self.origin = origin
        self.found = found
        self.waited_s = waited_s
        self._fd = fd
        self._next_offset = 0  # where a sequential reader reads next
        self._owner: HandleOwner | None = owner  # None: closed

    @property
    def key(self) -> FileKey:
        return self.entry.key

    @property
    def listed(self) -> Listed:
        return self.entry.listed

    @property
    def fd(self) -> int | None:
        return self._fd if self.entry.whole and self._owner is not None else None

    def read(self, offset: int, length: int) -> TransferFuture[bytes]:
        if self._owner is None:
            raise ValueError(f"{self.key}: is closed")
        return self._owner.read(self, offset, length)

    def continues_at(self, offset: int, length: int) -> bool:
        """Note a read, and return whether it continues the one before."""
        is_sequential, self._next_offset = offset == self._next_offset, offset + length
        return is_sequential

    def close(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.give_back(self.entry)
            owner.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.give_back(self.entry)
