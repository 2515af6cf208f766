"""Random identifiers, cheaply: the kernel is asked for many at once."""

import os

_BLOCK = 256


class Ids:
    """Each call gives 32 new lower-case hexadecimal digits."""

    def __init__(self) -> None:
        self._pool: list[str] = []

    def __call__(self) -> str:
        pool = self._pool
        if not pool:
            digits = os.urandom(16 * _BLOCK).hex()
            pool.extend(digits[at : at + 32] for at in range(0, 32 * _BLOCK, 32))
        return pool.pop()
