"""Runs that a busy sandbox was given ahead, and the tokens by which the server takes them back (decision 50).

Each such run has a token, a byte in a socket whose reading end the server shares with the launcher. The launcher takes
a token before it begins the run, and the server takes tokens to prevent runs. The kernel gives a token only to one of
them. The launcher begins runs in order, so the runs without a token are the last ones. It answers each with `NOT_RUN`.
Until these answers have arrived, no run is handed ahead, because an older one could take its token.

The function has the reading end, too. It can add no tokens, and the server waits for none, whatever flags it sets.
"""

import asyncio
import os
import socket
from collections import deque
from contextlib import suppress

from aliquot.live.node.base import Launch, RunRequest
from aliquot.live.node.launcher_connection import LauncherConnection, ahead_frame

MAX_PAYLOAD_BYTES = 16_384  # of a run handed ahead, so that all of them fit into the socket's buffer


def runs_ahead(launch: Launch) -> bool:
    """Return whether runs may be handed ahead to a Python sandbox of this launch, which has one plain function."""
    files = launch.datasets or launch.volumes
    return not (launch.sdk or launch.members or files or launch.module or launch.batch > 1)


def _is_plain(request: RunRequest) -> bool:
    """Return whether it is a plain run with a small payload."""
    return not (
        request.pickled
        or request.steps
        or request.handed
        or request.hand_on
        or request.shared_buffer is not None
        or len(request.payload) > MAX_PAYLOAD_BYTES
    )


class HandedRuns:
    """The runs of one sandbox that were handed ahead and have not been promoted to the current one."""

    __slots__ = ("_requests", "_shared", "_tokens", "_unsent", "began_ahead", "revoked")

    def __init__(self) -> None:
        self._tokens, self._shared = socket.socketpair()
        self._shared.setblocking(False)
        self._shared.shutdown(socket.SHUT_WR)
        self._requests: deque[RunRequest] = deque()
        self._unsent: list[bytes] = []
        self.revoked = 0  # answers `NOT_RUN` that will come
        self.began_ahead = False  # the current run was handed ahead

    def __len__(self) -> int:
        return len(self._requests)

    def descriptor(self) -> int:
        """Return a descriptor of the tokens for the sandbox. The caller closes it."""
        return os.dup(self._shared.fileno())

    @property
    def is_open(self) -> bool:
        return self._tokens.fileno() >= 0

    @property
    def awaited(self) -> int:
        """The number of replies that will come after that of the current run."""
        return len(self._requests) + self.revoked

    def add(self, request: RunRequest, connection: LauncherConnection, loop: asyncio.AbstractEventLoop) -> bool:
        """Hand a run ahead. It is sent with others at the end of this turn. Return False if it cannot be handed now."""
        if self.revoked or not _is_plain(request):
            return False
        self._requests.append(request)
        self._unsent.append(ahead_frame(request))
        if len(self._unsent) == 1:
            loop.call_soon(self._flush, connection)
        return True

    def _flush(self, connection: LauncherConnection) -> None:
        """Send the runs that were added, with one call of the kernel for their tokens and one for their frames."""
        unsent, self._unsent = self._unsent, []
        if unsent and self.is_open:
            with suppress(OSError):  # the function has shut it down, and the launcher answers `NOT_RUN`
                self._tokens.send(bytes(len(unsent)), socket.MSG_DONTWAIT)
            connection.send_more(b"".join(unsent))

    def begin_next(self) -> RunRequest | None:
        """Return the run that the sandbox begins now that it has replied to the current one, or None."""
        self.began_ahead = bool(self._requests)
        return self._requests.popleft() if self._requests else None

    def revoke(self) -> int:
        """Take back the runs that have not begun, and return their number."""
        unsent = len(self._unsent)  # these have no tokens yet, and are never sent
        self._unsent.clear()
        sent = self._take_tokens(len(self._requests) - unsent)
        self.revoked += sent
        return self._drop(sent + unsent)

    def give_up(self) -> int:
        """Drop all runs, because the launcher begins none of them after such a reply. Return their number."""
        unsent = len(self._unsent)
        self._unsent.clear()
        self.revoked += len(self._requests) - unsent
        return self._drop(len(self._requests))

    def answered_not_run(self) -> bool:
        """Count an answer `NOT_RUN`. Return False if none was to come."""
        if not self.revoked:
            return False
        self.revoked -= 1
        return True

    def has_not_begun(self) -> bool:
        """Return whether a launcher that has ended never began the current run, because its token is left."""
        sent = len(self._requests) - len(self._unsent)
        return self.began_ahead and self._take_tokens(sent + 1) > sent

    def close(self) -> None:
        self._tokens.close()
        self._shared.close()

    def _take_tokens(self, most: int) -> int:
        taken = 0
        with suppress(OSError):  # there is none left, or it is closed
            while taken < most and (tokens := self._shared.recv(most - taken, socket.MSG_DONTWAIT)):
                taken += len(tokens)
        return taken

    def _drop(self, count: int) -> int:
        for _ in range(count):
            self._requests.pop()
        return count
