"""The historian as a process: `python -m aliquot.live.history.historian.process FD DATA`.

The first question starts it. It ends when the server closes the connection, or after ten minutes without a question.
Then the next question starts another one, which reads the journal anew, so nothing is lost with it.

**Jobs.** Other work on the calls that have ended runs here, too, beside the questions. A job is a class with the
methods of `HistorianJob`: `call_ended` gets each call with its phases as soon as its record is written, `work` does a
small part of what is to be done, `report` tells the server how it goes, and `close` ends it. `make_jobs` lists them, by
the settings that the server passes as the third argument. With a job the server starts the historian at its own start
(`HistorianProcess.stay`), and it does not end for lack of questions: it looks for new rows every second.
"""

import os
import resource
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from aliquot.core.units import GIB
from aliquot.live.history.historian.historian import Historian, HistorianJob
from aliquot.live.history.messages import (
    LENGTH,
    MAX_FRAME_BYTES,
    REPORT,
    Answered,
    Asked,
    Search,
    asked_decoder,
    frame,
)
from aliquot.live.history.spans.job import make_span_job
from aliquot.live.store.base import StoreError
from aliquot.logs import set_up_logs

NICENESS = 10
MAX_DATA_BYTES = GIB
IDLE_S = 600.0
MAX_WAIT_S = 2.0  # for the index to be complete, before a question is answered from a part of it
_PART_S = 0.05  # of other work between questions
_JOB_READ_S = 1.0
_READ_BYTES = 1 << 16


class HistorianLoop:
    """Reads questions and writes answers on one socket."""

    def __init__(self, connection: socket.socket, historian: Historian, jobs: Sequence[HistorianJob]) -> None:
        self._connection = connection
        self._historian = historian
        self._jobs = jobs
        self._received = bytearray()
        self._asked: deque[Asked] = deque()
        self._explaining = False
        self._reported: dict[HistorianJob, bytes] = {}
        self._last_question_s = time.monotonic()

    def run(self) -> None:
        """Serve until the server closes the connection, or has asked nothing for a long time."""
        delay_s = 0.0
        while True:
            ready, _, _ = select.select([self._connection], [], [], 0.0 if self._asked else delay_s)
            if ready and not self._receive():
                return
            if self._asked:
                self._answer(self._asked.popleft())
                delay_s = 0.0
                continue
            if not self._jobs and time.monotonic() - self._last_question_s > IDLE_S:
                return
            delay_s = self._work()

    def _receive(self) -> bool:
        """Take questions. Return false if the server has closed the connection."""
        data = self._connection.recv(_READ_BYTES)
        self._received += data
        while len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            if length > MAX_FRAME_BYTES:
                return False
            end = LENGTH.size + length
            if len(self._received) < end:
                break
            self._asked.append(asked_decoder.decode(bytes(self._received[LENGTH.size : end])))
            del self._received[:end]
        return bool(data)

    def _answer(self, asked: Asked) -> None:
        self._last_question_s = time.monotonic()
        question = asked.question
        try:
            self._historian.catch_up(MAX_WAIT_S)
            if isinstance(question, Search) and question.cause:
                self._explaining = self._historian.explain(MAX_WAIT_S)
            answer = Answered(asked.number, self._historian.answer(question))
        except StoreError as error:
            answer = Answered(asked.number, error=error.public if question.viewer.tenant else str(error))
        self._connection.sendall(frame(answer))

    def _work(self) -> float:
        """Do a part of what is to be done between questions. Return how long nothing else is to be done."""
        delay_s = IDLE_S
        with suppress(StoreError):  # the next question tells it
            if self._jobs or not self._historian.complete:
                self._historian.catch_up(_PART_S)
                delay_s = _JOB_READ_S if self._historian.complete and self._jobs else delay_s
            if not self._historian.complete:
                delay_s = 0.0
            elif self._explaining:
                self._explaining = self._historian.explain(_PART_S)
                delay_s = 0.0
        now_s = time.monotonic()
        delay_s = max(0.0, min([delay_s, *(job.work(now_s) for job in self._jobs)]))
        for job in self._jobs:
            if (report := job.report()) != self._reported.get(job):
                self._reported[job] = report
                self._connection.sendall(frame(Answered(REPORT, report)))
        return delay_s


def make_jobs(settings: bytes) -> list[HistorianJob]:
    """Return the jobs that the server's settings ask for."""
    return [make_span_job(settings)] if settings else []


def main(fd: int, data: Path, settings: bytes) -> None:
    os.nice(NICENESS)
    set_up_logs()
    with suppress(ValueError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    jobs = make_jobs(settings)
    historian = Historian(data, jobs)
    with socket.socket(fileno=fd) as connection, suppress(ConnectionError, msgspec.DecodeError):
        try:
            HistorianLoop(connection, historian, jobs).run()
        finally:
            historian.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), os.fsencode(sys.argv[3]) if len(sys.argv) > 3 else b"")  # noqa: PLR2004
