"""Evaluate expressions and check definitions beside the event loop, in workers that the expression host forks.

There is one worker of each kind: for jobs that are quick, for those that take long, and for long checks. A worker that
the kernel ended is replaced within milliseconds. The job that it had fails, or is tried again with a longer limit.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from aliquot.core.units import MIB
from aliquot.live.expressions.host import ExpressionHost, WorkerConnection
from aliquot.live.expressions.jobs import CHECKS, LIMITS_S, LONG, QUICK, ExpressionJob, JobQueue
from aliquot.live.expressions.messages import (
    MAX_DATA_BYTES,
    CheckedDefinition,
    DefinitionCheckRequest,
    Drawing,
    DrawRequest,
    EvaluateRequest,
    WorkerReply,
    frame,
)
from aliquot.workflow.errors import QUERY_FAILED
from aliquot.workflow.interpreter import Evaluate, Evaluated
from aliquot.workflow.language import Complaint
from aliquot.workflow.marks import StateMark

MAX_SENT_BYTES = 64 * MIB  # to one worker, which keeps the definitions

log = structlog.get_logger(__name__)

_BOUNDS = f"{LIMITS_S[LONG]:g} s of processor time and {MAX_DATA_BYTES // MIB} MiB of memory"


class ExpressionWorkers:
    """The workers of a server. The first job starts them, and `stop` ends them."""

    def __init__(self, started: Callable[[int], None]) -> None:
        """`started` is called with the pid of each host, whose workers are in the same control groups."""
        self._host = ExpressionHost(started)
        self._queue = JobQueue()
        self._wakes = {kind: asyncio.Event() for kind in LIMITS_S}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def evaluate(
        self, tenant: str, digest: str, definition: bytes, command: Evaluate, done: Callable[[Evaluated], None]
    ) -> None:
        """Perform an Evaluate command of an execution whose definition has been checked. `done` is called later."""

        def build(limit_s: float, known: set[str]) -> bytes:
            made = frame(EvaluateRequest(limit_s, digest, None if digest in known else definition, command))
            known.add(digest)
            return made

        def answer(reply: WorkerReply) -> None:
            if isinstance(reply, Evaluated):
                done(reply)

        def overran() -> None:
            cause = f"The expressions of the state could not be evaluated within {_BOUNDS}"
            done(Evaluated(command.evaluation, error=QUERY_FAILED, cause=cause))

        self._add(ExpressionJob(tenant, LONG, build, answer, overran))

    async def check(self, tenant: str, definition: bytes) -> CheckedDefinition:
        """Check the text of a definition."""
        future: asyncio.Future[CheckedDefinition] = asyncio.get_running_loop().create_future()

        def answer(reply: WorkerReply) -> None:
            if isinstance(reply, CheckedDefinition) and not future.done():
                future.set_result(reply)

        reason = f"it takes more than {LIMITS_S[CHECKS]:g} s to check; write a smaller one, with shorter expressions"
        self._add(
            ExpressionJob(
                tenant,
                CHECKS,
                lambda limit_s, _: frame(DefinitionCheckRequest(limit_s, definition)),
                answer,
                lambda: answer(CheckedDefinition((Complaint("", "definition", reason),))),
            )
        )
        return await future

    async def draw(self, tenant: str, definition: bytes, marks: dict[str, StateMark], title: str) -> bytes:
        """Draw the graph of a checked definition as SVG. Returns nothing if it is too large."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answer(reply: WorkerReply) -> None:
            if isinstance(reply, Drawing) and not future.done():
                future.set_result(reply.svg)

        def build(limit_s: float, _: set[str]) -> bytes:
            return frame(DrawRequest(limit_s, definition, marks, title))

        self._add(ExpressionJob(tenant, CHECKS, build, answer, lambda: answer(Drawing(b""))))
        return await future

    async def stop(self) -> None:
        """End all workers. Jobs that wait are dropped: the log of their execution asks for them again."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._host.stop()

    def _add(self, job: ExpressionJob) -> None:
        self._wake(self._queue.add(job, time.monotonic()))

    def _wake(self, kind: str) -> None:
        self._wakes[kind].set()
        if kind not in self._tasks:
            self._tasks[kind] = asyncio.get_running_loop().create_task(self._serve(kind))

    async def _serve(self, kind: str) -> None:
        """Give jobs to workers of one kind, one worker after the other."""
        while True:
            await self._wakes[kind].wait()
            connection = await self._host.fork(nice=kind != QUICK)
            try:
                await self._talk(kind, connection)
            finally:
                connection.close()

    async def _talk(self, kind: str, connection: WorkerConnection) -> None:
        """Give jobs to a worker until it ends, or has taken so many definitions that another should begin anew."""
        wake = self._wakes[kind]
        while connection.sent_bytes < MAX_SENT_BYTES:
            job = self._queue.take(kind)
            if job is None:
                wake.clear()
                await wake.wait()
                continue
            try:
                request = job.frame(LIMITS_S[kind], connection.definitions)
            except UnicodeEncodeError:  # half a character, which no worker can be told
                job.overran()
                continue
            reply = await connection.ask(request)
            if reply is None:
                self._lost(job, kind)
                return
            try:
                job.done(reply)
            except Exception:  # an error with one answer must not end the others
                log.exception("the answer of an expression worker could not be handled", tenant=job.tenant)

    def _lost(self, job: ExpressionJob, kind: str) -> None:
        again = self._queue.overran(job, kind, time.monotonic())
        if again is None:
            job.overran()
        else:
            self._wake(again)
