"""Identifiers of tasks, and the tokens with which callbacks answer them.

A token is the place of the task in its execution, and a keyed hash of it. So no table of tokens is needed, and only
the owner of the secret can make one.
"""

from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

SEPARATOR = "."
PARTS = 4
MAX_TOKEN_CHARACTERS = 1000


class TaskPlace(NamedTuple):
    """An attempt of a task: the execution, the entry into the state, and the attempt."""

    execution: str
    entry: int
    attempt: int

    def task(self) -> str:
        """Return the identifier of this attempt, in the form of an activation's id."""
        return _hashed(f"task {self.execution} {self.entry} {self.attempt}")

    def chained(self, number: int) -> tuple[str, str]:
        """Return the identifier and the idempotency key of a task that runs after this one in the same sandbox."""
        place = f"{self.execution} {self.entry}"
        return _hashed(f"task {place} {self.attempt} chained {number}"), _hashed(f"key {place} chained {number}")

    def key(self) -> str:
        """Return the idempotency key, which is the same for all attempts."""
        return _hashed(f"key {self.execution} {self.entry}")

    def token(self, secret: bytes) -> str:
        return SEPARATOR.join([self.execution, str(self.entry), str(self.attempt), self._seal(secret)])

    def _seal(self, secret: bytes) -> str:
        text = f"token {self.execution} {self.entry} {self.attempt}"
        return blake2b(text.encode(), digest_size=16, key=secret[:64]).hexdigest()


def _hashed(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def read_token(text: str, secret: bytes) -> TaskPlace | None:
    """Return the place that a token stands for, or None if the token was not made with this secret."""
    parts = text.rsplit(SEPARATOR, PARTS - 1)
    if not text.isascii() or len(text) > MAX_TOKEN_CHARACTERS or len(parts) != PARTS:
        return None
    if not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    place = TaskPlace(parts[0], int(parts[1]), int(parts[2]))
    return place if compare_digest(place.token(secret), text) else None
