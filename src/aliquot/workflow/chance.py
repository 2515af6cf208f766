"""Chance as a hash: the same execution draws the same numbers whenever its log is replayed."""

from hashlib import blake2b

RANGE = 2**64


def fraction(seed: str) -> float:
    """Return a number from 0 up to 1 that depends on the seed alone."""
    digest = blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (RANGE >> 11)


class Chance:
    """The random numbers of one evaluation."""

    __slots__ = ("_drawn", "_seed")

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._drawn = 0

    def fraction(self) -> float:
        self._drawn += 1
        return fraction(f"{self._seed}/{self._drawn}")

    def uuid(self) -> str:
        """Return an identifier in the form of a UUID of version 4."""
        self._drawn += 1
        digits = blake2b(f"{self._seed}/{self._drawn}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        variant = "89ab"[int(digits[16], 16) % 4]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
