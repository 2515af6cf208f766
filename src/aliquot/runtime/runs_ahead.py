"""Runs that the server hands to the sandbox while it is busy (`aliquot.live.node.handed_runs`)."""

from __future__ import annotations

import os
import time

from .frames import DEVELOPER_ERROR, MAX_RUN_TIME_UNITS, RUN_AHEAD, RUN_TIME_UNIT_S


class RunsAhead:
    """Decides whether a run may begin, and measures it."""

    def __init__(self, tokens: int) -> None:
        """`tokens` is a socket with one byte for each run that was handed ahead and not taken back."""
        self._tokens = tokens
        self._stopped = False  # until a run comes that was not handed ahead
        self._began_s = 0.0

    def may_run(self, kind: int) -> bool:
        """Return whether a request of this kind may run. One that was handed ahead takes its token."""
        if kind != RUN_AHEAD:
            self._stopped = False
        elif not self._take_token() or self._stopped:
            return False
        self._began_s = time.perf_counter()
        return True

    def ended(self, status: int, *, printed: bool) -> int:
        """Return the time of the run, in units, for its reply.

        If it has printed, the server must read the output before another run prints. After a developer error the server
        ends the sandbox. In both cases no run that was handed ahead follows.
        """
        self._stopped = printed or status == DEVELOPER_ERROR
        units = int((time.perf_counter() - self._began_s) / RUN_TIME_UNIT_S) + 1
        return min(units, MAX_RUN_TIME_UNITS)

    def _take_token(self) -> bool:
        try:
            return bool(os.read(self._tokens, 1))
        except OSError:  # there is none, or the function has closed the descriptor
            return False
