"""Executions of the store: which are open, how they come into memory and leave it, and their recovery."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from aliquot.live.invocations.call import Call
from aliquot.live.invocations.call_registry import STORE_RETRY_DELAY_S
from aliquot.live.invocations.workflows.definitions import Definitions
from aliquot.live.invocations.workflows.engine import ExecutionEngine, Performer
from aliquot.live.invocations.workflows.loading import restore
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.invocations.workflows.turns import FairTurns
from aliquot.live.store.base import Document, DocumentChange, Store, StoreError
from aliquot.live.store.executions import OPEN_STATUS
from aliquot.live.store.records import name_of_owner
from aliquot.workflow.interpreter import Event, RedriveAsked, StopAsked, TimerDue

T = TypeVar("T")
log = structlog.get_logger("aliquot.workflows")

SECRETS, SECRET_NAME = "secrets", "workflow tokens"
SECRET_BYTES = 32
RESIDENT_S = 60.0  # how long an execution that only waits stays in memory
SWEEP_S = 5.0
NAMESPACE_DELETED = "the namespace was deleted"


class Executions:
    """Holds the engine, and reads executions from the store when something happens to them."""

    def __init__(self, store: Store, clock: Callable[[], float], performer: Performer) -> None:
        self._store = store
        self.definitions = Definitions()
        self.secret = os.urandom(SECRET_BYTES)  # with which tokens are made
        self.engine = ExecutionEngine(store, clock, performer, self._due)
        self._turns = FairTurns()
        self._loading: dict[str, asyncio.Task[ExecutionRun | None]] = {}
        self._work: set[asyncio.Task[Any]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self) -> int:
        """Read the open executions, and continue those that have work. Returns how many there are."""
        kept = next((one for one in await self._store.scan(SECRETS) if one.name == SECRET_NAME), None)
        if kept is None:
            await self._store.put(SECRETS, Document("", SECRET_NAME, self.secret))
        else:
            self.secret = kept.body
        found = await self._store.open_executions()
        for one in found:
            self.engine.open.add(one.id, one.owner)
        for one in found:
            if one.busy:
                self.spawn(self.load_patiently(one.owner, one.id))
            else:
                self.engine.timers.set(one.id, one.due)
        self._sweep()
        return len(found)

    def rest(self) -> None:
        """Begin no more tasks of durable executions. The next server does."""
        self.engine.stopping = True

    def stop(self) -> None:
        """Do nothing more."""
        self.engine.stopping = True
        self.engine.timers.stop()
        self._turns.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._work:
            task.cancel()

    async def load(self, owner: str, execution: str) -> ExecutionRun | None:
        """Return an open execution, from memory or from the store. Raises `StoreError`."""
        run = self.engine.runs.get(execution)
        if run is not None:
            return run if run.owner == owner else None
        if self.engine.open.owner(execution) != owner:
            return None
        loading = self._loading.get(execution)
        if loading is None:
            loading = self._loading[execution] = self.spawn(self._load(owner, execution))
            loading.add_done_callback(lambda _: self._loading.pop(execution, None))
        return await asyncio.shield(loading)

    async def _load(self, owner: str, execution: str) -> ExecutionRun | None:
        stored = await self._store.stored_execution(owner, execution)
        if stored is None or stored.row.status != OPEN_STATUS:
            return None
        run, commands = await restore(stored, self.definitions, self.secret)
        self.engine.take_up(run, commands)
        return run

    async def redrive(self, owner: str, execution: str) -> bool:
        """Take up an ended execution where it failed. Durable. Raises `EventRefusedError` and `StoreError`."""
        run = await self.load(owner, execution)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if run is None:
            stored = await self._store.stored_execution(owner, execution)
            if stored is None:
                return False
            restored, _ = await restore(stored, self.definitions, self.secret)
            run = self.engine.runs.get(execution)  # another redrive may have been faster
            if run is None:
                self.engine.redrive(restored, RedriveAsked(), durable)
        if run is not None:
            self.engine.post(run, RedriveAsked(), durable)
        await durable
        return True

    async def load_patiently(self, owner: str, execution: str) -> ExecutionRun | None:
        """Return an open execution as `load` does, and try again while the store fails."""
        while True:
            try:
                return await self.load(owner, execution)
            except StoreError as error:
                log.warning("an execution cannot be read; trying again", error=str(error))
                await asyncio.sleep(STORE_RETRY_DELAY_S)

    async def post(self, owner: str, execution: str, event: Event) -> None:
        """Give an event to an open execution. One that has ended meanwhile does not need it."""
        run = await self.load_patiently(owner, execution)
        if run is not None:
            self.engine.post(run, event)

    def deletions(self, _: str) -> list[DocumentChange]:
        """Return nothing: executions are no documents, and are stopped when their namespace is gone."""
        return []

    def forget(self, namespace: str) -> None:
        """Stop the executions of a namespace that was deleted. They are removed with its records."""
        for execution, owner in self.open_of(namespace):
            self.spawn(self.post(owner, execution, StopAsked(cause=NAMESPACE_DELETED)))

    def open_of(self, namespace: str) -> list[tuple[str, str]]:
        """Return the open executions of a namespace, each with its owner."""
        return [(one, owner) for one, owner in self.engine.open.items() if name_of_owner(owner) == namespace]

    def _due(self, execution: str) -> None:
        owner = self.engine.open.owner(execution)
        if owner is not None:
            self._turns.add(owner, lambda: self._wake(owner, execution))

    def _wake(self, owner: str, execution: str) -> None:
        run = self.engine.runs.get(execution)
        if run is not None:
            self.engine.post(run, TimerDue())
        else:
            self.spawn(self.post(owner, execution, TimerDue()))

    def _sweep(self) -> None:
        """Let executions leave memory that have only waited for a while."""
        engine, before = self.engine, self.engine.clock() - RESIDENT_S
        while engine.idle:
            execution, since = next(iter(engine.idle.items()))
            if since > before:
                break
            del engine.idle[execution]
            run = engine.runs[execution]
            if run.express or run.limited is not None or run.is_followed():
                engine.idle[execution] = engine.clock()
                continue
            del engine.runs[execution]
            run.has_ended = run.call.parked = True
            end_call(run.call)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine that `stop` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task


def end_call(call: Call) -> None:
    """Tell the maker of a call that it has ended."""
    if call.done is not None:
        call.done(call)
