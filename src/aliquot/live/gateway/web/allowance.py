"""How much of the memory strangers may fill at once with what they send.

Whoever has a key answers for it; a web action takes bodies from anyone, and each stays in memory until its call ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.core.units import MIB
from aliquot.live.gateway.http.refusal import OVERLOADED, Refusal

SMALL_BYTES = MIB  # these always pass: what is large must not keep out what is not
_TIMES = 8  # of the largest body


class AnonymousBodyLimit:
    def __init__(self, largest_bytes: int) -> None:
        self._largest_bytes = largest_bytes
        self._left_bytes = _TIMES * largest_bytes

    @contextmanager
    def taken(self, headers: dict[bytes, bytes]) -> Iterator[None]:
        """While a request with these headers is under way. Raises a 503 when there is no room."""
        length = headers.get(b"content-length", b"0")
        size = int(length) if length.isdigit() and b"transfer-encoding" not in headers else self._largest_bytes
        size = min(size, self._largest_bytes)  # what is larger is refused anyway
        if size <= SMALL_BYTES:
            yield
            return
        if size > self._left_bytes:
            raise Refusal(503, OVERLOADED)
        self._left_bytes -= size
        try:
            yield
        finally:
            self._left_bytes += size
