"""The registry of calls that have not ended. It writes them to the store's queue, and a record at the end of each."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from aliquot.clock import now_ms
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.errors import OverloadedError, RateLimitError
from aliquot.live.invocations.parameters import ParameterMerger
from aliquot.live.invocations.sessions.live_sessions import LiveSessions
from aliquot.live.store.base import Store, StoreError
from aliquot.live.store.kept_bytes import QuotaError
from aliquot.live.store.records import Activation

log = structlog.get_logger("aliquot.service")

STORE_RETRY_DELAY_S = 0.5
STOPPING = "the server is stopping; try again"


class CallRegistry:
    """Holds the running and waiting calls, and makes accepted calls and their records durable."""

    def __init__(
        self, store: Store, now: Callable[[], float], on_result: Callable[[Call], None] = lambda _: None
    ) -> None:
        """`on_result` is told of ended calls whose results others may have."""
        self._store = store
        self._now = now  # the platform's clock
        self.calls: dict[str, Call] = {}
        self.sessions = LiveSessions()
        self.stopping = False
        self._on_result = on_result
        self._all_ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- arrival -----------------------------------------------------------------------------------------

    def check_open(self, owner: str) -> None:
        """Raise `OverloadedError` if no call can be taken now, or `RateLimitError` if none of this owner can."""
        health = self._store.health
        complaint = STOPPING if self.stopping else health.problem
        if complaint is not None:
            raise OverloadedError(complaint)
        if health.behind and (why := health.behind.get(owner)):
            raise RateLimitError(why)

    def add(self, call: Call) -> None:
        """Register a call until `end` or `forget`."""
        self.calls[call.id] = call
        call.run.arrived_s = self._now()
        if call.session:
            self.sessions.begin(call.namespace.name, call.session, now_s=time.monotonic(), now_ms=now_ms())

    async def keep(self, call: Call) -> None:
        """Write the call to the store's queue. It is durable on return. Raises `OverloadedError`."""
        call.durable = True
        try:
            await self._store.accept(call.accepted(now_ms()))
        except StoreError as error:
            call.durable, call.queue_entry = False, ""
            raise refusal_of(error) from error

    async def keep_all(self, calls: Sequence[Call], record: Activation, event: bytes) -> None:
        """Write the calls of one event and the event's record in one transaction. Raises `OverloadedError`."""
        self.check_open(record.owner)
        at_ms = now_ms()
        try:
            await self._store.accept_all([call.accepted(at_ms) for call in calls], record, event)
        except StoreError as error:
            raise refusal_of(error) from error

    async def load_payload(self, call: Call) -> bool:
        """Read the payload of a queued call from disk, if it is only there. Return False if it is gone."""
        while call.on_disk:
            try:
                payload = await self._store.payload(call.id)
            except StoreError as error:
                await self._pause_after(error)
                continue
            call.on_disk = False
            if call.event and payload:
                payload = ParameterMerger(call.resolved).merge_event(bytes(payload))
            call.payload = payload
        return len(call.payload) > 0

    async def count_start(self, activation_id: str) -> None:
        """Count the start of a sandbox for a queued call. A store that fails does not prevent the start."""
        with contextlib.suppress(StoreError):
            await self._store.count_start(activation_id)

    async def forget_starts(self, calls: Sequence[Call]) -> None:
        """Set the counts of starts to 0 for calls that the next server runs."""
        await asyncio.gather(*(self._store.forget_starts(call.queue_entry) for call in calls), return_exceptions=True)

    async def mark_started(self, activation_id: str) -> None:
        """Write that a queued call has begun. It is durable on return."""
        await self._write_with_retries(lambda: self._store.mark_started(activation_id))

    # --- end ------------------------------------------------------------------------------------------

    def end(self, call: Call, activation: Activation) -> None:
        """End a call with its record. The record of a queued call is written first, then `done` is called."""
        call.ended = True
        if call.durable:
            self.spawn(self.end_durably(call, activation))
            return
        call.activation = activation
        self._store.record(activation)
        self.forget(call)

    async def end_durably(self, call: Call, activation: Activation) -> None:
        """End a queued call. Its record is durable on return."""
        await self._write_with_retries(lambda: self._store.finish(activation))
        call.activation = activation
        self.forget(call)

    def forget(self, call: Call) -> None:
        """Remove a call that has ended, or that waits on disk for the next server, and call its `done`."""
        known = self.calls.pop(call.id, None)
        if call.result_key is not None:
            self._on_result(call)
        if known is not None and call.session:
            self.sessions.finish(call.namespace.name, call.session, now_s=time.monotonic(), now_ms=now_ms())
        if not self.calls:
            self._all_ended.set()
        if call.done is not None:
            call.done(call)

    async def wait_for_all(self, grace_s: float) -> None:
        """Wait until all calls have ended, at most for the given time."""
        while self.calls and grace_s > 0:
            self._all_ended.clear()
            try:
                await asyncio.wait_for(self._all_ended.wait(), grace_s)
            except TimeoutError:
                log.warning("stopped before all calls had ended", calls=len(self.calls))
                break

    # --- writes ----------------------------------------------------------------------------------------

    async def _write_with_retries(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeat a write until the store takes it, because an accepted call must not be lost."""
        while True:
            try:
                return await write()
            except StoreError as error:
                await self._pause_after(error)

    async def _pause_after(self, error: StoreError) -> None:
        log.warning("the store fails; trying again", error=str(error))
        await asyncio.sleep(STORE_RETRY_DELAY_S)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine as a task that `stop` cancels."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        self.stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def refusal_of(error: StoreError) -> OverloadedError | RateLimitError:
    """Return the error for a caller: the namespace has used up its disk space, or the store fails."""
    return RateLimitError(error.public) if isinstance(error, QuotaError) else OverloadedError(error.public)
