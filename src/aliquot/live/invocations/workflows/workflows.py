"""Workflows as the platform runs them: their calls become executions, and their tasks become calls."""

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import UNSET

from aliquot.budgets import Budget
from aliquot.clock import now_ms
from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.expressions.workers import ExpressionWorkers
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.call_registry import STORE_RETRY_DELAY_S, CallRegistry, refusal_of
from aliquot.live.invocations.errors import (
    CallRefusedError,
    OverloadedError,
    PayloadError,
    RateLimitError,
    malformed_payload,
)
from aliquot.live.invocations.limited_executions import LimitedExecutions, not_taken
from aliquot.live.invocations.rate_limits import steady_clock
from aliquot.live.invocations.trace_context import pack_trace
from aliquot.live.invocations.workflows.definitions import with_timeout
from aliquot.live.invocations.workflows.engine import Performer
from aliquot.live.invocations.workflows.executions import Executions, end_call
from aliquot.live.invocations.workflows.loading import restored_call
from aliquot.live.invocations.workflows.objects import Held, HeldObject, ValueWithObjects, read_container
from aliquot.live.invocations.workflows.options import PLAIN, StartOptions, WorkflowSettings
from aliquot.live.invocations.workflows.plans import WorkflowPlans
from aliquot.live.invocations.workflows.records import ExecutionInfo, execution_record, result_of
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.invocations.workflows.task_ends import REFUSED, TaskEnd, end_of_child, end_of_row
from aliquot.live.invocations.workflows.tasks import (
    INTERRUPTED,
    INTERRUPTED_CAUSE,
    ExpectAfter,
    ResolveFor,
    TaskCalls,
    is_express,
)
from aliquot.live.node.base import Outcome
from aliquot.live.store.base import Store, StoreError
from aliquot.live.store.records import Activation, name_of_owner
from aliquot.workflow.errors import DATA_LIMIT, TIMEOUT
from aliquot.workflow.interpreter import (
    Evaluate,
    Execution,
    Finish,
    RunTask,
    Started,
    StopAsked,
    TaskEnded,
)
from aliquot.workflow.interpreter.commands import ABORTED, FAILED
from aliquot.workflow.values import MAX_VALUE_SIZE

PARENT_ENDED = "the execution that it was a task of has ended"
TOO_LARGE = "The input has {} bytes; a workflow takes {} at most."
TOO_MANY = "Too many open executions in the namespace (count: {}, allowed: {})."


class Workflows:
    """Runs the executions of all workflows. The `Composer` passes calls of workflows to it."""

    def __init__(
        self,
        registry: CallRegistry,
        store: Store,
        resolve: ResolveFor,
        *,
        run_call: Callable[[Call], None],
        cancel_call: Callable[[str, str], bool],
        count: Callable[[Call], None],
        payloads: Budget,
        settings: WorkflowSettings,
        limited: LimitedExecutions,
        clock: Callable[[], float] | None = None,
        expect: ExpectAfter | None = None,
    ) -> None:
        """`run_call` and `cancel_call` pass the calls of tasks to the platform, `expect` what is called after one."""
        self._registry = registry
        self._store = store
        self._cancel_call = cancel_call
        self._max_open = settings.max_open
        self.expressions = settings.expressions or ExpressionWorkers(lambda _: None)
        self._limited = limited
        self._plans = WorkflowPlans(limited, resolve, self._drop_late)
        performer = Performer(
            self._run_task, self._cancel_task, self._evaluate, self._finish, self._fetch, self._plans.restored
        )
        self.executions = Executions(store, clock or steady_clock(), performer)
        self._engine = self.executions.engine
        most = settings.max_tasks
        self._calls = TaskCalls(resolve, run_call, self._task_ended, self._fetch, count, payloads, most, expect)

    # --- calls of workflows -----------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Take a call whose caller waits. Raises `OverloadedError` and `CallRefusedError`."""
        self._registry.check_open(call.namespace.owner)
        run = self._make(call)
        run.blocking = True
        graph = self._plans.graph(run)
        if graph is None:
            self._begin_awaited(run)
        else:
            self._plans.begin_if_admitted(run, graph, self._begin_awaited)

    def _begin_awaited(self, run: ExecutionRun) -> None:
        if run.express:
            self._registry.add(run.call)
        self._begin(run, failed=lambda error: _drop(run.call, error.public))

    async def accept(self, call: Call, start: StartOptions = PLAIN) -> None:
        """Take a call that is acknowledged before it runs. It is durable on return."""
        self._registry.check_open(call.namespace.owner)
        run = self._make(call, start)
        graph = self._plans.graph(run)
        if graph is not None and not await self._plans.admit(run, graph):
            raise not_taken(call)
        if run.express:
            await self._keep(run)
            self._registry.add(call)
            run.queue_entry = call.id
            self._begin(run)
            return
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine.begin(run, self._started(run, start), durable, name=start.name)
        try:
            await durable
        except StoreError as error:
            raise refusal_of(error) from error

    async def _keep(self, run: ExecutionRun) -> None:
        try:
            await self._registry.keep(run.call)
        except (CallRefusedError, OverloadedError):
            if run.limited is not None:
                run.limited.end()
            raise

    def enqueue(self, call: Call) -> None:
        """Run a call that is in the store's queue, or is a component or a task of another."""
        try:
            run = self._make(call)
        except CallRefusedError as error:
            self._registry.end(call, self._refused(call, str(error)))
            return
        if run.express:
            self._registry.add(call)
            run.queue_entry = call.id if call.durable else ""
            self._begin(run)
        elif call.durable:  # it stays in the queue until it is an execution
            self._begin(run, failed=lambda _: self._enqueue_later(call), dequeue=True)
        else:
            self._begin(run, failed=lambda error: _drop(call, error.public))

    def _enqueue_later(self, call: Call) -> None:
        asyncio.get_running_loop().call_later(STORE_RETRY_DELAY_S, self.enqueue, call)

    async def detach(self, call: Call) -> None:
        """Make a submitted call durable, because its caller stops waiting."""
        await self._limited.decided(call.id)
        run = self._engine.runs.get(call.id)
        if run is None:
            return
        run.blocking = False
        if run.express and not call.durable:
            call.run.begun_s = call.run.begun_s or call.run.arrived_s  # its effects must not happen twice
            await self._registry.keep(call)

    async def end_unstarted(self, call: Call, reason: str) -> None:
        """End a call that is in the store's queue and cannot run."""
        await self._registry.end_durably(call, self._refused(call, reason))

    def cancel(self, owner: str, execution: str) -> bool:
        """Stop an execution. Returns whether the owner has such an open one."""
        if self._engine.open.owner(execution) != owner:
            return False
        self.executions.spawn(self.executions.post(owner, execution, StopAsked()))
        return True

    def follow(self, owner: str, execution: str, follower: Follower) -> bool:
        """Send the lines of an execution's tasks and its end to the follower. Returns whether it is open."""
        if self._engine.open.owner(execution) != owner:
            return False
        self.executions.spawn(self._follow(owner, execution, follower))
        return True

    async def _follow(self, owner: str, execution: str, follower: Follower) -> None:
        run = await self.executions.load(owner, execution)
        if run is not None:
            run.call.follow(follower)
            return
        ended = restored_call(execution, owner, ExecutionInfo(name_of_owner(owner), "", "", 0))
        ended.activation = await self._store.activation(owner, execution)
        follower.ended(ended)

    def _make(self, call: Call, start: StartOptions = PLAIN) -> ExecutionRun:
        """Return a new execution for a call. Raises `CallRefusedError`."""
        action, owner = call.action, call.namespace.owner
        given = _read_input(call)
        if (count := self._engine.open.count(owner)) >= self._max_open:
            raise RateLimitError(TOO_MANY.format(count, self._max_open))
        definition = self.executions.definitions.of_action(action.revision, action.exec.code)
        task = call.task
        info = ExecutionInfo(
            namespace=call.namespace.name,
            path=f"{action.namespace}/{action.name}",
            version=action.version,
            started_ms=now_ms(),
            binding=str(call.resolved.binding)[1:] if call.resolved.binding is not None else "",
            cause=call.cause,
            session=call.session,
            transaction=call.transaction,
            trace=pack_trace(call.trace),
            parent=task.execution if task is not None else "",
            depth=task.depth if task is not None else 0,
            timeout_s=start.timeout_s,
        )
        machine = Execution(with_timeout(definition.machine, info), secret=self.executions.secret)
        run = ExecutionRun(call, info, definition, machine, express=is_express(call.resolved))
        if given is not None:
            run.given = given
            run.hold(given.held)
        return run

    def _begin(
        self,
        run: ExecutionRun,
        *,
        failed: Callable[[StoreError], None] = lambda _: None,
        dequeue: bool = False,
    ) -> None:
        def done(written: "asyncio.Future[None]") -> None:
            if isinstance(error := written.exception(), StoreError):
                failed(error)

        durable: asyncio.Future[None] | None = None
        if not run.express:
            durable = asyncio.get_running_loop().create_future()
            durable.add_done_callback(done)
        self._engine.begin(run, self._started(run, PLAIN), durable, dequeue=dequeue)

    def _started(self, run: ExecutionRun, start: StartOptions) -> Started:
        if run.given is not None:
            value, run.given = run.given.value, None
        else:
            value = msgspec.json.decode(run.call.payload) if start.value is UNSET else start.value
        if (
            run.call.durable or not run.express
        ):  # an express call may be made durable later, when its caller stops waiting
            run.call.payload = b""  # its part of the namespace's memory stays reserved: the machine has the value
        return Started(run.id, value, start.name, run.info.path)

    def _refused(self, call: Call, reason: str) -> Activation:
        """Return the record of a call that cannot run."""
        finish = Finish(FAILED, error=REFUSED, cause=reason)
        result = result_of(finish)
        call.outcome = Outcome(result.status, result.body, 0)
        action = call.action
        info = ExecutionInfo(
            call.namespace.name, f"{action.namespace}/{action.name}", action.version, now_ms(), cause=call.cause
        )
        return execution_record(call.id, call.namespace.owner, info, finish, info.started_ms, ())

    # --- commands of executions -------------------------------------------------------------------------

    def _run_task(self, run: ExecutionRun, command: RunTask) -> None:
        resolved = self._calls.resolve(run, command)
        if isinstance(resolved, TaskEnded):
            self._engine.post(run, resolved)
        elif resolved.workflow and not is_express(resolved):
            self._run_child(run, command, resolved)
        elif run.express or (reruns := reruns_of(resolved.action)) is None:
            self._calls.begin(run, command, resolved)
        elif (begun := run.begun_tasks[command.task]) > reruns:
            cause = INTERRUPTED_CAUSE.format("once" if begun == 1 else f"{begun} times", reruns)
            self._engine.post(run, TaskEnded(command.task, error=INTERRUPTED, cause=cause))
        else:
            run.begun_tasks[command.task] += 1
            self._engine.write_begun(run, command.task, lambda: self._calls.begin(run, command, resolved))

    def _run_child(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction) -> None:
        """Run a task that is an execution in the store. Its end is delivered by the id of its parent."""
        run.children[command.task] = None
        if self._engine.open.owner(command.task) is not None:  # it was begun before, and goes on
            return
        if run.recovering:
            self.executions.spawn(self._resume_child(run, command, resolved))
        else:
            self._begin_child(run, command, resolved)

    async def _resume_child(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction) -> None:
        row = await self._store.execution(run.owner, command.task)
        if row is None:
            self._begin_child(run, command, resolved)
        else:
            record = await self._store.activation(run.owner, command.task)
            self._task_ended(run, end_of_row(row, record.pickled if record is not None else None))

    def _begin_child(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction) -> None:
        def failed(why: str) -> None:
            self.executions.spawn(
                self.executions.post(run.owner, run.id, TaskEnded(command.task, error=REFUSED, cause=why))
            )

        def begin(call: Call) -> None:
            try:
                child = self._make(call)
            except CallRefusedError as error:
                failed(str(error))
                return
            self._begin(child, failed=lambda error: failed(error.public))

        self._calls.make(run, command, resolved, begin)

    def _task_ended(self, run: ExecutionRun, end: TaskEnd) -> None:
        """Pass the end of a task to its execution, unless the namespace may not keep the objects of the output."""
        event = end.event
        if end.held and not run.express:
            size = sum(one.size for one in end.held.values())
            if (why := self._store.reason_full(run.owner, size)) is not None:
                self._engine.post(run, TaskEnded(event.task, error=DATA_LIMIT, cause=why))
                return
        self._engine.post(run, event, held=end.held)

    def _fetch(self, run: ExecutionRun, names: list[str], then: Callable[[Held], None]) -> None:
        """Read objects of a durable execution from the disk. Those that are not there are left out."""
        self.executions.spawn(self._read_objects(run, names, then))

    async def _read_objects(self, run: ExecutionRun, names: list[str], then: Callable[[Held], None]) -> None:
        found: dict[str, bytes] | None = None
        while found is None:
            try:
                found = await self._store.execution_objects(run.owner, run.id, names)
            except StoreError:
                await asyncio.sleep(STORE_RETRY_DELAY_S)
        then({name: HeldObject(body) for name, body in found.items()})

    def _drop_late(self, run: ExecutionRun, reason: str) -> None:
        """End an execution whose promise is broken."""
        self._engine.post(run, StopAsked(TIMEOUT, reason))

    def _cancel_task(self, run: ExecutionRun, task: str) -> None:
        if task in run.children:
            self.executions.spawn(self.executions.post(run.owner, task, StopAsked(cause=PARENT_ENDED)))
        else:
            self._cancel_call(run.owner, self._calls.call_of(task))

    def _evaluate(self, run: ExecutionRun, command: Evaluate) -> None:
        definition = run.definition
        self.expressions.evaluate(
            run.owner, definition.digest, definition.text, command, lambda made: self._engine.post(run, made)
        )

    def _finish(self, run: ExecutionRun, finish: Finish, record: Activation) -> None:
        call, result = run.call, result_of(finish)
        seconds = (record.end - record.start) / 1000
        dropped = finish.status == ABORTED and call.objective is not None and call.objective.dropped
        call.outcome = Outcome(result.status, result.body, seconds, tuple(run.tasks), record.pickled, timed_out=dropped)
        if run.express:
            parent = self._engine.runs.get(run.info.parent)
            if parent is not None and run.machine.device_ms:
                parent.inner_ms[run.id] = run.machine.device_ms
            self._registry.end(call, record)
            return
        call.activation, call.ended = record, True
        end_call(call)
        if run.info.parent:
            end = end_of_child(run.id, finish, record.pickled, run.machine.device_ms)
            self.executions.spawn(self._tell_parent(run.owner, run.info.parent, end))

    async def _tell_parent(self, owner: str, parent: str, end: TaskEnd) -> None:
        run = await self.executions.load_patiently(owner, parent)
        if run is not None:
            self._task_ended(run, end)


def _read_input(call: Call) -> ValueWithObjects | None:
    """Return the input of a call that has objects, or None if it is JSON. Raises `PayloadError`."""
    if not call.pickled:
        if len(call.payload) > MAX_VALUE_SIZE:
            raise PayloadError(TOO_LARGE.format(len(call.payload), MAX_VALUE_SIZE))
        return None
    try:
        return read_container(call.id, call.payload)
    except ValueError as error:
        raise malformed_payload(f"{error}.") from error


def _drop(call: Call, reason: str) -> None:
    """End a call that could not begin, without a record."""
    call.reason = reason
    end_call(call)
