"""The data directory of a server: its lock, and the paths of its files."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from aliquot.core.errors import InputError

DATABASE, LOCAL, LOCK, USAGE = "aliquot.db", "local.json", "lock", "usage.ring"
PROFILE = "profile"
OPERATOR_TOKEN = "operator.token"  # noqa: S105 - the name of a file
SECRETS_KEY = "secrets.key"


class DataDirectory:
    """A data directory locked by this process. The kernel releases the lock when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"--data: {path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._lock, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise InputError(
                f"--data: {path} is in use by another server (pid {owner}); stop that one, or give this one a "
                "directory of its own"
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, str(os.getpid()).encode())

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    @property
    def usage(self) -> Path:
        return self.path / USAGE

    @property
    def profile(self) -> Path:
        return self.path / PROFILE

    @property
    def objects(self) -> Path:
        return self.path / "objects"

    @property
    def operator_token(self) -> Path:
        return self.path / OPERATOR_TOKEN

    @property
    def secrets_key(self) -> Path:
        return self.path / SECRETS_KEY

    def publish(self, ready: dict[str, Any]) -> None:
        """Write the server's address and key for commands of the same user. `release` deletes the file."""
        write_private(self.path / LOCAL, json.dumps(ready))

    def release(self) -> None:
        (self.path / LOCAL).unlink(missing_ok=True)
        os.close(self._lock)


def write_private(path: Path, content: str) -> None:
    """Write a file atomically and readable by its owner only, because it holds a key. It survives a power failure."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
