"""One server to a database: a lock that the kernel takes back when its holder dies, however it dies."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from aliquot.live.store.base import StoreError


class OwnerLock:
    """A lock of its own file, because closing any descriptor of the database would drop SQLite's locks on it.

    It is a POSIX record lock: a child that was forked does not inherit it, so a sandbox that outlives a killed server
    does not keep the next one out. The price: a process does not exclude itself, hence the table of what is held here.
    """

    _held: set[Path] = set()  # noqa: RUF012 - shared by all on purpose

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-lock").resolve()
        self._database = database
        if self._path in self._held:
            raise StoreError(f"{database} is open in this process already")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{database.parent} cannot be written ({error.strerror}); choose another data directory, "
                "or give this one to this user"
            ) from error
        try:
            self._take()
        except BaseException:
            os.close(self._file)
            raise
        self._held.add(self._path)

    def _take(self) -> None:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip() or "?"
            raise StoreError(
                f"{self._database} is in use by another server (process {holder}); "
                "stop it, or choose another data directory"
            ) from error
        # Best effort: on a full disk the lock holds without the note of who has it.
        with suppress(OSError):
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        self._held.discard(self._path)
        os.close(self._file)
