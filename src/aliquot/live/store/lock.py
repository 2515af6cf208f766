"""A lock that lets one server use a database. The kernel releases it when the process ends, however it ends."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from aliquot.live.store.base import StoreError


class OwnerLock:
    """A lock on a separate file, because closing any descriptor of the database would drop SQLite's locks on it.

    It is a POSIX record lock. Forked children do not inherit it, so a sandbox that outlives a killed server does not
    block the next server. Such a lock does not exclude its own process, so the class also keeps a set of held paths.
    """

    _held: set[Path] = set()  # noqa: RUF012 - shared by all instances on purpose

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + "-lock").resolve()
        self._database = database
        if self._path in self._held:
            raise StoreError(f"{database} is open in this process already")
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{database.parent} cannot be written ({error.strerror}); choose another data folder, "
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
                "stop it, or choose another data folder"
            ) from error
        # On a full disk the lock holds without the process id of its owner.
        with suppress(OSError):
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        self._held.discard(self._path)
        os.close(self._file)
