"""Chance as a hash: the same execution draws the same numbers whenever its log is replayed."""

from collections.abc import Callable
from hashlib import blake2b

RANGE = 2**64


def fraction(seed: str) -> float:
    """Return a number from 0 up to 1 that depends on the seed alone."""
    digest = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (RANGE >> 11)


class Chance:
    """The random numbers of one evaluation. The seed is made when the first one is drawn."""

    __slots__ = ("_drawn", "_seed")

    def __init__(self, seed: str | Callable[[], str]) -> None:
        self._seed = seed
        self._drawn = 0

    def fraction(self) -> float:
        return fraction(self._next())

    def _next(self) -> str:
        self._drawn += 1
        if not isinstance(self._seed, str):
            self._seed = self._seed()
        return f"{self._seed}/{self._drawn}"

    def uuid(self) -> str:
        """Return an identifier in the form of a UUID of version 4."""
        digits = blake2b(self._next().encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        variant = "89ab"[int(digits[16], 16) % 4]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
