"""Handles on files of the cache."""

from typing import Protocol, Self

from aliquot.storage.cache.base import TransferFuture
from aliquot.storage.cache.entry import Entry
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey, Found, Listed


class Lender(Protocol):
    def read(self, handle: "Handle", offset: int, length: int) -> TransferFuture[bytes]: ...
    def give_back(self, entry: Entry) -> None: ...
    def settle(self) -> None: ...


class Handle:
    """See `base.Opened`."""

    def __init__(self, entry: Entry, origin: Origin, fd: int, found: Found, waited_s: float, lender: Lender) -> None:
        self.entry = entry
        self.origin = origin
        self.found = found
        self.waited_s = waited_s
        self.next_offset = 0  # where a reader that reads in order goes on
        self._fd = fd
        self._lender: Lender | None = lender

    @property
    def key(self) -> FileKey:
        return self.entry.key

    @property
    def listed(self) -> Listed:
        return self.entry.listed

    @property
    def fd(self) -> int | None:
        return self._fd if self.entry.whole and self._lender is not None else None

    def read(self, offset: int, length: int) -> TransferFuture[bytes]:
        if self._lender is None:
            raise ValueError(f"{self.key}: is closed")
        return self._lender.read(self, offset, length)

    def close(self) -> None:
        lender, self._lender = self._lender, None
        if lender is not None:
            lender.give_back(self.entry)
            lender.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        lender, self._lender = self._lender, None
        if lender is not None:
            lender.give_back(self.entry)
