"""Collects the output of a sandbox from two pipes into formatted lines, with bounded memory."""

import os
import time

from aliquot.live.node.base import OutputListener

TRUNCATED = "Logs were truncated because the total bytes size exceeds the limit of {} bytes."
MISSING = "The action did not initialize or run as expected. Log data might be missing."

_STREAMS = ("stdout", "stderr")
_READ_BYTES = 65536  # what a pipe holds
_RUNNING_READ_BYTES = 16384  # at once during a run: a page of empty lines must not block the event loop
_MAX_DRAIN_READS = 8  # a child that keeps printing must not keep the server reading


def _stamp(stream: int) -> str:
    now = time.time_ns()
    seconds, nanoseconds = divmod(now, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z {_STREAMS[stream]}: "


def error_line(text: str) -> str:
    """Format a line as if the function had printed it to stderr."""
    return f"{_stamp(1)}{text}"


class Logs:
    """The output of one sandbox, an activation at a time."""

    __slots__ = ("_begun", "_fds", "_left", "_limit", "_lines", "_listener", "_truncated")

    def __init__(self, out: int, err: int) -> None:
        self._fds = (out, err)
        self._limit = self._left = 0
        self._lines: list[str] = []
        self._begun = [b"", b""]  # the incomplete last line of each stream
        self._truncated = False
        self._listener: OutputListener | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of this activation so far."""
        return tuple(self._lines)

    @property
    def listener(self) -> OutputListener | None:
        """The receiver of the lines of the activation that runs."""
        return self._listener

    def begin(self, limit: int, listener: OutputListener | None = None) -> None:
        """Begin an activation that may print `limit` bytes. With a limit of 0, output is dropped without a notice."""
        self._limit = self._left = limit
        self._listener = listener

    def read(self, stream: int) -> bool:
        """Read some of a stream's output. Return False at its end."""
        try:
            data = os.read(self._fds[stream], _RUNNING_READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._take(stream, data)
        return bool(data)

    def pause(self, *, printed: bool = True) -> None:
        """End the current lines, because another activation prints from now on. `printed`: see `finish`."""
        if printed or self._begun[0] or self._begun[1]:
            self._end_lines(printed=printed)

    def finish(self, *, printed: bool = True, failed: bool = False) -> tuple[str, ...]:
        """Return the lines of the activation, which has ended.

        `printed` is false when the sandbox has said that its pipes are empty: they are not read then. Everything that
        the activation itself printed was in the pipes before its reply was sent.
        """
        if printed or self._begun[0] or self._begun[1]:
            self._end_lines(printed=printed)
        listener, self._listener = self._listener, None
        if not (self._lines or self._truncated or failed):
            return ()
        last = [TRUNCATED.format(self._limit)] if self._truncated else []
        for text in [*last, MISSING] if failed else last:
            self._lines.append(_stamp(1) + text)
            if listener is not None:
                listener.printed(self._lines[-1])
        lines = tuple(self._lines)
        self._lines = []
        self._truncated = False
        return lines

    def _end_lines(self, *, printed: bool) -> None:
        for stream in (0, 1):
            if printed:
                self._drain(stream)
            begun = self._begun[stream]
            if begun:
                self._begun[stream] = b""
                self._add(_stamp(stream), begun)

    def _drain(self, stream: int) -> None:
        for _ in range(_MAX_DRAIN_READS):
            try:
                data = os.read(self._fds[stream], _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._take(stream, data)

    def _take(self, stream: int, data: bytes) -> None:
        if self._truncated or self._limit == 0:
            self._begun[stream] = b""
            return
        pieces = (self._begun[stream] + data).split(b"\n")
        self._begun[stream] = pieces.pop()
        if pieces:
            stamp = _stamp(stream)
            for piece in pieces:
                if not self._add(stamp, piece):
                    self._begun[stream] = b""
                    return
        if len(self._begun[stream]) > self._left:
            self._add(_stamp(stream), self._begun[stream])
            self._begun[stream] = b""

    def _add(self, stamp: str, piece: bytes) -> bool:
        """Add one line and count it with its timestamp. Return False when the limit is reached."""
        size = len(stamp) + len(piece)
        if size > self._left:
            self._truncated = True
            piece = piece[: max(0, self._left - len(stamp))]
            if not piece:
                return False
        self._left -= size
        self._lines.append(stamp + piece.decode("utf-8", "replace"))
        if self._listener is not None:
            self._listener.printed(self._lines[-1])
        return not self._truncated
