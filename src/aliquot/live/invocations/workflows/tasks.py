"""Tasks of executions: each is an ordinary call of the caller's namespace, and its end is an event."""

from collections import deque
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from aliquot.budgets import Budget, Reservation
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call, TaskVariables
from aliquot.live.invocations.sequences.payloads import name_from_text, with_defaults
from aliquot.live.invocations.workflows.chains import Links, TaskChain, links_of, step_arguments
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.executions import ExecutionRow
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import FullName
from aliquot.workflow.errors import DATA_LIMIT
from aliquot.workflow.interpreter import Finish, RunTask, TaskEnded
from aliquot.workflow.interpreter.commands import SUCCEEDED, ChainedTask
from aliquot.workflow.values import MAX_VALUE_SIZE, Value

ERROR, TIMEOUT, CRASHED, LOST = "Function.Error", "Function.Timeout", "Function.Crashed", "Function.Lost"
MISSING, INTERRUPTED, REFUSED = "Function.Missing", "Function.Interrupted", "Function.Refused"
MAX_CAUSE_CHARACTERS = 32_768  # as on AWS
MAX_DEPTH = 16
INTERRUPTED_CAUSE = "The server stopped while the function ran, and its annotation rerun is false"
DURABLE_IN_EXPRESS = (
    "{} is a durable workflow, and an execution that is not durable cannot wait for it; deploy it with durable: false, "
    "or the calling workflow with durable: true"
)
TOO_DEEP = f"workflows call each other {MAX_DEPTH} deep at most"

ResolveFor = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def is_express(resolved: ResolvedAction) -> bool:
    """Return whether executions of this workflow are not stored."""
    return resolved.action.annotation("durable") is False


class TaskCalls:
    """Makes the calls of tasks, and turns their outcomes into events."""

    def __init__(
        self,
        resolve: ResolveFor,
        run: Callable[[Call], None],
        ended: Callable[[ExecutionRun, TaskEnded], None],
        count: Callable[[Call], None],
        payloads: Budget,
        max_tasks: int,
    ) -> None:
        """`run` passes a call to the platform, and `ended` takes the end of a task."""
        self._resolve = resolve
        self._run = run
        self._ended = ended
        self._count = count
        self._payloads = payloads
        self._ids = Ids()
        self._chains: dict[str, str] = {}  # the call of a chain, by its first task
        self._slots = Budget("tasks of workflows", "tasks", max_tasks)
        self._waiting: dict[str, deque[tuple[ExecutionRun, RunTask, ResolvedAction]]] = {}  # by tenant

    def call_of(self, task: str) -> str:
        """Return the id of the call that runs a task: its own, or that of its chain."""
        return self._chains.get(task, task)

    def resolve(self, run: ExecutionRun, command: RunTask | ChainedTask) -> ResolvedAction | TaskEnded:
        """Return the action or workflow of a task as it is now, or the end of the task if there is none."""
        caller = run.call.namespace.name
        name = name_from_text(command.resource, caller)
        shown = command.resource
        try:
            if name is None:
                return TaskEnded(command.task, error=MISSING, cause=f"{shown} is no name of an action")
            resolved = self._resolve(caller, name)
        except NotFoundError:
            return TaskEnded(command.task, error=MISSING, cause=f"the action {shown} does not exist")
        except AccessDeniedError:
            return TaskEnded(command.task, error=MISSING, cause=f"the action {shown} cannot be read by {caller}")
        if resolved.workflow:
            if run.express and not is_express(resolved):
                return TaskEnded(command.task, error=REFUSED, cause=DURABLE_IN_EXPRESS.format(shown))
            if run.info.depth + 1 >= MAX_DEPTH:
                return TaskEnded(command.task, error=REFUSED, cause=TOO_DEEP)
        return resolved

    def make(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction) -> Call:
        """Return the call of a task."""
        arguments = command.arguments
        payload = _encode(arguments if isinstance(arguments, dict) else {"value": arguments})
        if not resolved.is_sequence:
            payload = with_defaults(resolved.action, payload)
        variables = TaskVariables(run.id, run.info.depth + 1, command.key, command.token, command.until)
        return self._make(run, command, resolved, payload, command.attempt, variables)

    def _make(
        self,
        run: ExecutionRun,
        task: RunTask | ChainedTask,
        resolved: ResolvedAction,
        payload: bytes,
        attempt: int,
        variables: TaskVariables,
    ) -> Call:
        outer = run.call
        call = Call(
            task.task,
            outer.namespace,
            resolved,
            payload,
            transaction=outer.transaction,
            cause=run.id,
            notes=_notes(run.id, task.state, attempt),
            session=outer.session,
            followers=(run,),
        )
        call.task = variables
        return call

    def begin(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction) -> None:
        """Call the action of a task, unless the execution has given it up."""
        if run.has_ended or not run.awaits(command.task):
            return
        tenant = run.call.namespace.name
        if not self._slots.fits(tenant, 1):
            self._waiting.setdefault(tenant, deque()).append((run, command, resolved))
            return
        self._slots.take(tenant, 1)
        call = self.make(run, command, resolved)
        links = links_of(command, resolved, lambda task: self._link(run, task)) if command.chain else []
        if links:
            call = self._chain(run, call, links)
        else:
            call.done = lambda ended: self._returned(run, ended)
        payload = call.payload
        if len(payload) > SMALL_PAYLOAD_BYTES:
            if not self._payloads.fits(tenant, len(payload)):
                cause = self._payloads.refusal(tenant, len(payload))
                self._chains.pop(command.task, None)
                self._release(tenant)
                self._ended(run, TaskEnded(command.task, error=REFUSED, cause=cause))
                return
            call.reserved = Reservation(self._payloads, tenant, len(payload))
        if run.queue_entry:  # an accepted express execution: its first task marks it as started
            call.queue_entry, run.queue_entry = run.queue_entry, ""
        self._run(call)

    def _link(self, run: ExecutionRun, task: ChainedTask) -> ResolvedAction | None:
        found = self.resolve(run, task)
        return None if isinstance(found, TaskEnded) else found

    def _chain(self, run: ExecutionRun, first: Call, links: Links) -> Call:
        """Return the call that runs a task and those that follow it in its sandbox."""

        def step_ended(step: Call) -> None:
            self._count(step)
            if step.id != first.id:
                run.note_task(step.id)

        def done(ended: TaskChain) -> None:
            self._chain_returned(run, first, ended)

        chain = TaskChain(first, self._ids, step_ended=step_ended, done=done)
        for task, resolved in links:
            following = self._make(run, task, resolved, b"{}", 0, TaskVariables(run.id, run.info.depth + 1, task.key))
            chain.add(following, step_arguments(task))
        self._chains[first.id] = chain.call.id
        return chain.call

    def _chain_returned(self, run: ExecutionRun, first: Call, chain: TaskChain) -> None:
        del self._chains[first.id]
        self._release(first.namespace.name)
        if chain.call.parked:
            return
        if chain.last is None:
            self._ended(run, TaskEnded(first.id, error=REFUSED, cause=chain.call.reason))
            return
        run.call.run.begun_s = run.call.run.begun_s or chain.call.run.begun_s
        end = end_of_task(chain.last)
        self._ended(run, replace(end, task=first.id, chained=chain.ended - 1))

    def _returned(self, run: ExecutionRun, call: Call) -> None:
        call.done = None  # breaks the reference cycle between the two
        self._release(call.namespace.name)
        if call.parked:  # the server stops, and the next one runs it
            return
        self._count(call)
        if call.resolved.has_code:
            run.call.run.begun_s = run.call.run.begun_s or call.run.begun_s
        self._ended(run, end_of_task(call))

    def _release(self, tenant: str) -> None:
        """Return the place of a task, and begin others that have waited for one."""
        self._slots.give_back(tenant, 1)
        for waiter in list(self._waiting):
            queue = self._waiting.get(waiter)  # a task that fails at once returns its place in between
            while queue and self._slots.fits(waiter, 1):
                self.begin(*queue.popleft())
            if not queue:
                self._waiting.pop(waiter, None)


def _notes(execution: str, state: str, attempt: int) -> str:
    return note("execution", execution) + note("state", state) + note("attempt", attempt)


def end_of_task(call: Call) -> TaskEnded:
    """Return the end of the task whose call has ended."""
    outcome = call.outcome
    if outcome is None:
        return TaskEnded(call.id, error=REFUSED, cause=call.reason)
    if len(outcome.result) > MAX_VALUE_SIZE:
        cause = f"The result has {len(outcome.result)} bytes; a task of a workflow may return {MAX_VALUE_SIZE}"
        return TaskEnded(call.id, error=DATA_LIMIT, cause=cause)
    try:
        result = _decode(outcome.result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return TaskEnded(call.id, error=CRASHED, cause=f"The result cannot be read: {error}")
    if outcome.status is Status.SUCCESS:
        return TaskEnded(call.id, _value_of(call.resolved, result))
    name, cause = _error_of(outcome, result)
    return TaskEnded(call.id, error=name, cause=cause[:MAX_CAUSE_CHARACTERS])


def end_of_child(task: str, finish: Finish) -> TaskEnded:
    """Return the end of a task that was an execution of its own."""
    if finish.status == SUCCEEDED:
        return TaskEnded(task, finish.output)
    return TaskEnded(task, error=finish.error or f"Execution.{finish.status}", cause=finish.cause or "")


def end_of_row(row: ExecutionRow) -> TaskEnded:
    """Return the end of a task that was an execution of its own, as it is stored."""
    return end_of_child(row.id, msgspec.json.decode(row.outcome, type=_Outcome).as_finish(row.status))


class _Outcome(msgspec.Struct):
    output: Value = None
    error: str | None = None
    cause: str | None = None

    def as_finish(self, status: str) -> Finish:
        return Finish(status, self.output, self.error, self.cause)


def _value_of(resolved: ResolvedAction, result: Value) -> Value:
    """Return a result as the workflow sees it. A function of the SDK wraps what is no object."""
    wrapped = isinstance(result, dict) and list(result) == ["value"]
    return result["value"] if wrapped and (resolved.workflow or resolved.action.annotation("sdk") is True) else result


def _error_of(outcome: Outcome, result: Value) -> tuple[str, str]:
    """Return the name and the cause of a failure."""
    error = result.get("error") if isinstance(result, dict) else result
    text = error if isinstance(error, str) else _encode(error).decode()
    if outcome.timed_out:
        return TIMEOUT, text
    if outcome.status is Status.INTERNAL_ERROR:
        return LOST, text
    if outcome.status is Status.DEVELOPER_ERROR:
        return CRASHED, text
    if isinstance(error, dict) and isinstance(name := error.get("name"), str) and name:
        cause = next((error[key] for key in ("cause", "message") if isinstance(error.get(key), str)), text)
        return name, cause
    return ERROR, text
