"""Random identifiers, made in blocks so that one call of the kernel serves many.

They begin with the time. Identifiers of one moment are therefore neighbours in the store's index, which halves the cost
of inserting them.
"""

import os

from aliquot.clock import now_ms

_BLOCK = 256


class Ids:
    """A generator of identifiers. Each call returns 32 new lower-case hexadecimal digits."""

    def __init__(self) -> None:
        self._pool: list[str] = []

    def __call__(self) -> str:
        pool = self._pool
        if not pool:
            moment = f"{now_ms():012x}"
            digits = os.urandom(10 * _BLOCK).hex()
            pool.extend(moment + digits[at : at + 20] for at in range(0, 20 * _BLOCK, 20))
        return pool.pop()
