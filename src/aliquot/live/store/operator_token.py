"""The operator's token: kept in a file that only its owner can read, so that it survives restarts."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Self

from aliquot.core.errors import InputError
from aliquot.live.store.data_directory import write_private

MIN_TOKEN_LENGTH = 32
_PRIVATE = 0o600


class OperatorToken:
    """The token of the operator's requests. Without a path it is held in memory only."""

    def __init__(self, text: str, path: Path | None = None) -> None:
        self._path = path
        self._listeners: list[Callable[[str], None]] = []
        self._set(text)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the token from its file, or make a new one. Raises `InputError` if the file holds no token."""
        try:
            text = path.read_text(encoding="ascii").strip()
            path.chmod(_PRIVATE)
        except FileNotFoundError:
            text = _new_token()
            _write(path, text)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--data: {path} cannot be read: {error}; remove it, and a new one is made") from error
        if len(text) < MIN_TOKEN_LENGTH or not text.isprintable() or " " in text:
            raise InputError(
                f"--data: {path} holds no token: it takes at least {MIN_TOKEN_LENGTH} characters in one "
                "word; remove the file, and a new one is made"
            )
        return cls(text, path)

    def rotate(self) -> str:
        """Make a new token and return it. The old one is refused from now on."""
        text = _new_token()
        if self._path is not None:
            _write(self._path, text)
        self._set(text)
        for listener in self._listeners:
            listener(text)
        return text

    def on_rotated(self, listener: Callable[[str], None]) -> None:
        """Call the listener with every new token."""
        self._listeners.append(listener)

    def matches(self, given: bytes) -> bool:
        """Compare a token in constant time. An empty token matches nothing."""
        return bool(self.text) and hmac.compare_digest(hashlib.sha256(given).digest(), self._digest)

    def _set(self, text: str) -> None:
        self.text = text
        self._digest = hashlib.sha256(text.encode()).digest()


def _new_token() -> str:
    return secrets.token_urlsafe(32)


def _write(path: Path, text: str) -> None:
    try:
        write_private(path, f"{text}\n")
    except OSError as error:
        raise InputError(f"--data: {path} cannot be written: {error.strerror}") from error
