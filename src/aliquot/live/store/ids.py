"""Random identifiers, made in blocks so that one call of the kernel serves many.

They begin with the time. Identifiers of one moment are therefore neighbours in the store's index, which halves the cost
of inserting them.
"""

import os
import re

from aliquot.clock import now_ms

_BLOCK = 256
_random_parts = re.compile("[0-9a-f]{20}").findall


class Ids:
    """A generator of identifiers. Each call returns 32 new lower-case hexadecimal digits."""

    def __init__(self) -> None:
        self._pool: list[str] = []

    def __call__(self) -> str:
        pool = self._pool
        if not pool:
            moment = f"{now_ms():012x}"
            digits = os.urandom(10 * _BLOCK).hex()
            pool.extend(map(moment.__add__, _random_parts(digits)))
        return pool.pop()
