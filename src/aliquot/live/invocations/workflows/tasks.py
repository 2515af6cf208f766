"""Tasks of executions: each is an ordinary call of the caller's namespace, and its end is an event."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from msgspec.structs import replace

from aliquot.budgets import Budget, BudgetError, Reservation
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call, SharedArguments, TaskVariables
from aliquot.live.invocations.sequences.payloads import name_from_text
from aliquot.live.invocations.trace_context import trace_within
from aliquot.live.invocations.workflows.chains import Links, TaskChain, links_of
from aliquot.live.invocations.workflows.objects import Held, make_container, make_payload, reserve
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.invocations.workflows.task_arguments import TaskArguments, arguments_of, takes_objects
from aliquot.live.invocations.workflows.task_ends import REFUSED, TaskEnd, end_of_task
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import FullName
from aliquot.workflow.errors import DATA_LIMIT
from aliquot.workflow.interpreter import RunTask, TaskEnded
from aliquot.workflow.interpreter.offers import ChainedTask

MISSING, INTERRUPTED = "Function.Missing", "Function.Interrupted"
MAX_DEPTH = 16
MAX_TASKS = 8192  # that are calls now
INTERRUPTED_CAUSE = "The server stopped {} while the function ran, and its annotation rerun allows {} further runs"
DURABLE_IN_EXPRESS = (
    "{} is a durable workflow, and an execution that is not durable cannot wait for it; deploy it with durable: false, "
    "or the calling workflow with durable: true"
)
TOO_DEEP = f"workflows call each other {MAX_DEPTH} deep at most"
OBJECT_LOST = "An object of the arguments is no longer kept"
NO_OBJECTS = "The arguments have a Python object, which only functions of the SDK and workflows take; {} is none"

ResolveFor = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`
Ended = Callable[[ExecutionRun, TaskEnd], None]
Fetch = Callable[[ExecutionRun, list[str], Callable[[Held], None]], None]


def is_express(resolved: ResolvedAction) -> bool:
    """Return whether executions of this workflow are not stored."""
    return resolved.action.annotation("durable") is False


ExpectAfter = Callable[[str, str, str, str], None]  # tenant, function that runs, the one after it, and source


class TaskCalls:
    """Makes the calls of tasks, and turns their outcomes into events."""

    def __init__(
        self,
        resolve: ResolveFor,
        run: Callable[[Call], None],
        ended: Ended,
        fetch: Fetch,
        count: Callable[[Call], None],
        payloads: Budget,
        max_tasks: int,
        expect: ExpectAfter | None,
    ) -> None:
        """`run` passes a call to the platform, `ended` takes the end of a task, and `fetch` reads objects from disk."""
        self._resolve = resolve
        self._run = run
        self._ended = ended
        self._fetch = fetch
        self._count = count
        self._expect = expect
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

    def make(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction, then: Callable[[Call], None]) -> None:
        """Make the call of a task that is a workflow, and pass it on, at once or when its objects have been read."""
        given = arguments_of(command, resolved, [])

        def make(held: Held) -> None:
            if given.names <= held.keys():
                then(self._call(run, command, resolved, given, held))
            else:
                self._fail(run, command.task, OBJECT_LOST)

        self._with_objects(run, given, make)

    def _with_objects(self, run: ExecutionRun, given: TaskArguments, then: Callable[[Held], None]) -> None:
        """Pass the objects of a task's arguments on, those of a durable execution perhaps from the disk."""
        known = {name: run.objects[name] for name in given.names if name in run.objects}
        missing = sorted(given.names - known.keys())
        if missing:
            self._fetch(run, missing, lambda read: then({**known, **read}))
        else:
            then(known)

    def _fail(self, run: ExecutionRun, task: str, cause: str, error: str = REFUSED) -> None:
        self._ended(run, TaskEnd(TaskEnded(task, error=error, cause=cause)))

    def _call(
        self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction, given: TaskArguments, held: Held
    ) -> Call:
        variables = TaskVariables(run.id, run.info.depth + 1, command.key, command.token, command.until)
        call = self._make(run, command, resolved, given.text, command.attempt, variables)
        if given.found and resolved.workflow:
            call.payload, call.pickled = make_container(given, held), True
        elif given.found:
            made = make_payload(given.text, given.found, held)
            call.payload, call.shared = made.payload, SharedArguments(objects=made.buffers)
        return call

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
            notes=run.note + _state_note(task.state, attempt),
            session=outer.session,
            followers=(run,),
            trace=trace_within(outer),
        )
        call.task = variables
        if run.limited is not None and not resolved.workflow and not resolved.composite:
            call.stage = run.limited.place(task.state)
        return call

    def begin(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction) -> None:
        """Call the action of a task, unless the execution has given it up."""
        if run.has_ended or not run.awaits(command.task):
            return
        tenant = run.call.namespace.name
        if not self._slots.fits(tenant, 1):
            self._waiting.setdefault(tenant, deque()).append((run, command, resolved))
            return
        links = links_of(command, resolved, lambda task: self._link(run, task)) if resolved.group else []
        given = arguments_of(command, resolved, links)
        if given.found and not takes_objects(resolved):
            self._fail(run, command.task, NO_OBJECTS.format(command.resource))
            return
        size = sum(one.size for _, one in given.found) if given.found else 0
        if size > SMALL_PAYLOAD_BYTES and not self._payloads.fits(tenant, size) and self._slots.held(tenant):
            self._waiting.setdefault(tenant, deque()).append((run, command, resolved))  # until another task ends
            return
        self._slots.take(tenant, 1)
        if not given.found:
            self._start(run, command, resolved, links, given, {})
            return
        self._with_objects(run, given, lambda held: self._start(run, command, resolved, links, given, held))

    def _start(
        self,
        run: ExecutionRun,
        command: RunTask,
        resolved: ResolvedAction,
        links: Links,
        given: TaskArguments,
        held: Held,
    ) -> None:
        """Call the action of a task that has its place, unless the execution has given it up meanwhile."""
        tenant = run.call.namespace.name
        if run.has_ended or not run.awaits(command.task):
            self._release(tenant)
            return
        if given.found and not given.names <= held.keys():
            self._release(tenant)
            self._fail(run, command.task, OBJECT_LOST)
            return
        call = self._call(run, command, resolved, given, held)
        if links:
            call = self._chain(run, call, links, given)
        else:
            call.done = lambda ended: self._returned(run, ended)
        payload = call.payload
        if len(payload) > SMALL_PAYLOAD_BYTES:
            if not self._payloads.fits(tenant, len(payload)):
                cause = self._payloads.refusal(tenant, len(payload))
                self._chains.pop(command.task, None)
                self._release(tenant)
                self._fail(run, command.task, cause)
                return
            call.reserved = Reservation(self._payloads, tenant, len(payload))
        if run.queue_entry:  # an accepted express execution: its first task marks it as started
            call.queue_entry, run.queue_entry = run.queue_entry, ""
        self._run(call)
        if self._expect is not None and not links:
            self._expect_next(run, command, resolved, self._expect)

    def _expect_next(self, run: ExecutionRun, command: RunTask, resolved: ResolvedAction, expect: ExpectAfter) -> None:
        """Tell which function the state after this one will call, if that is a Task."""
        machine, caller = run.definition.machine, run.call.namespace.name
        following = machine.find(command.state).next
        resource = None if following is None else machine.find(following).resource
        name = None if resource is None or not resource.name else name_from_text(resource.name, caller)
        with suppress(NotFoundError, AccessDeniedError):
            found = None if name is None else self._resolve(caller, name)
            if found is not None and not found.composite and not found.workflow:
                expect(found.tenant, resolved.function, found.function, "workflow")

    def _link(self, run: ExecutionRun, task: ChainedTask) -> ResolvedAction | None:
        found = self.resolve(run, task)
        return None if isinstance(found, TaskEnded) else found

    def _chain(self, run: ExecutionRun, first: Call, links: Links, given: TaskArguments) -> Call:
        """Return the call that runs a task and those that follow it in its sandbox."""

        def step_ended(step: Call) -> None:
            self._count(step)
            if step.id != first.id:
                run.note_task(step.id)

        def done(ended: TaskChain) -> None:
            self._chain_returned(run, first, ended)

        chain = TaskChain(first, self._ids, step_ended=step_ended, done=done)
        for (task, resolved), arguments in zip(links, given.steps, strict=True):
            following = self._make(run, task, resolved, b"{}", 0, TaskVariables(run.id, run.info.depth + 1, task.key))
            chain.add(following, arguments)
        self._chains[first.id] = chain.call.id
        chain.call.stage = first.stage
        return chain.call

    def _chain_returned(self, run: ExecutionRun, first: Call, chain: TaskChain) -> None:
        del self._chains[first.id]
        self._release(first.namespace.name)
        if chain.call.parked:
            return
        if chain.last is None:
            self._fail(run, first.id, chain.call.reason)
            return
        run.call.run.begun_s = run.call.run.begun_s or chain.call.run.begun_s
        end = end_of_task(chain.last)
        times = {"waited_ms": chain.waited_ms, "ran_ms": round(chain.ran_ms, 3)} if end.event.device else {}
        event = replace(end.event, task=first.id, chained=chain.ended - 1, **times)
        self._take(run, chain.last, TaskEnd(event, end.held))

    def _returned(self, run: ExecutionRun, call: Call) -> None:
        call.done = None  # breaks the reference cycle between the two
        self._release(call.namespace.name)
        if call.parked:  # the server stops, and the next one runs it
            return
        self._count(call)
        if call.resolved.has_code:
            run.call.run.begun_s = run.call.run.begun_s or call.run.begun_s
        end = end_of_task(call)
        if run.inner_ms and (used := run.inner_ms.pop(call.id, None)):
            end = TaskEnd(replace(end.event, inner_ms=used), end.held)
        self._take(run, call, end)

    def _take(self, run: ExecutionRun, call: Call, end: TaskEnd) -> None:
        """Pass the end of a task on. Its objects count as memory of the namespace as long as they are held."""
        outcome = call.outcome
        if not end.held and (outcome is None or outcome.pickled is None):
            self._ended(run, end)
            return
        try:
            reserve(end.held, self._payloads, call.namespace.name, outcome)
        except BudgetError as error:
            self._fail(run, end.event.task, str(error), DATA_LIMIT)
        else:
            self._ended(run, end)

    def _release(self, tenant: str) -> None:
        """Return the place of a task, and begin others that have waited for one."""
        self._slots.give_back(tenant, 1)
        if not self._waiting:
            return
        for waiter in list(self._waiting):
            queue = self._waiting.get(waiter)  # a task that fails at once returns its place in between
            while queue and self._slots.fits(waiter, 1):
                self.begin(*queue.popleft())
            if not queue:
                self._waiting.pop(waiter, None)


@lru_cache(maxsize=4096)
def _state_note(state: str, attempt: int) -> str:
    return note("state", state) + note("attempt", attempt)
