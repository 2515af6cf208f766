"""Heads of invocation requests that were read before, by the digest of their bytes.

Clients send the same head again and again. The meaning of a head is remembered: its path, its options and the length of
the body. The caller, the action and the limits are looked up for every request, so a key, an action or a limit that
changes takes effect at once. Unusual heads are not remembered. Examples are heads with an id for the request, with a
session, or with a request to close the connection.

The header `traceparent` is new with every call of a traced caller. Its line is cut out of the head, and passed on.
"""

import hashlib
import os

from aliquot.live.gateway.http.limits import LimitHeaders
from aliquot.live.gateway.http.query import InvokeOptions
from aliquot.live.invocations.trace_context import TRACEPARENT_BYTES

MAX_HEADS = 1024
MAX_HEAD_BYTES = 2048
MAX_BODY_BYTES = 65_536  # of requests whose heads are remembered; larger bodies seldom arrive at once
_BEGIN = b"POST /api/v1/namespaces/"
_END = b"\r\n\r\n"
_TRACE = b"\r\ntraceparent: "
TRACE_LINE_BYTES = len(_TRACE) + TRACEPARENT_BYTES


class KnownHead:
    """The meaning of a head. The caller is known by a digest of its credentials, see `Auth.recall`."""

    __slots__ = ("caller", "length", "limits", "options", "path", "size")

    def __init__(
        self,
        path: bytes,
        options: InvokeOptions,
        caller: bytes,
        size: int,
        length: int,
        limits: LimitHeaders | None = None,
    ) -> None:
        self.path = path
        self.options = options
        self.caller = caller
        self.size = size  # of the head, in bytes
        self.length = length  # of the body
        self.limits = limits  # the caller's deadline and cost limit


def split_head(head: bytes, begin: int) -> tuple[bytes, bytes]:
    """Return a head without the line of its header `traceparent`, which begins there, and the value of the header.

    A line of another length stays in the head, and the value is empty.
    """
    end = begin + TRACE_LINE_BYTES
    if head[end : end + 2] != _END[:2]:
        return head, b""
    return head[:begin] + head[end:], head[begin + len(_TRACE) : end]


def without_trace(head: bytes) -> bytes:
    """Return a head without the line that `KnownHeads.find` cuts out."""
    begin = head.find(_TRACE)
    return head if begin < 0 else split_head(head, begin)[0]


class KnownHeads:
    """The remembered heads of all connections. When there are too many, all are forgotten."""

    def __init__(self) -> None:
        self._salt = os.urandom(32)
        self._heads: dict[bytes, KnownHead] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, data: bytes) -> tuple[KnownHead, bytes] | None:
        """Return the head of a request, if it is known and the data are exactly one request, or its head alone.

        With it comes the value of its header `traceparent`, which is empty if there is none.
        """
        if not data.startswith(_BEGIN):
            return None
        end = data.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
        begin = data.find(_TRACE, 0, end)
        whole = data[:end]
        traceparent = b""
        if begin >= 0:
            whole, traceparent = split_head(whole, begin)
        head = self._heads.get(self._digest(whole))
        return (head, traceparent) if head is not None and len(data) - end in (head.length, 0) else None

    def remember(self, data: bytes, head: KnownHead) -> None:
        """Remember a head that was read from these bytes, if it is small enough and the only one in them."""
        end = data.find(_END, 0, MAX_HEAD_BYTES) + len(_END)
        if end == len(data) == head.size and head.length <= MAX_BODY_BYTES and data.startswith(_BEGIN):
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[self._digest(data)] = head

    def _digest(self, head: bytes) -> bytes:
        """Return the key of a head. The head itself is not kept, because it has the caller's secret."""
        return hashlib.blake2b(head, digest_size=16, key=self._salt).digest()
