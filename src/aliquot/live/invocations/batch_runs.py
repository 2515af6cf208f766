"""Run batches: several calls of one function in one run of its sandbox, each with its own result and record."""

from collections.abc import Callable, Sequence

import msgspec
import structlog
from msgspec import Raw
from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.commands import Run, Start
from aliquot.core.events import Event, RunFinished
from aliquot.core.units import MIB
from aliquot.live.bodies.large import LARGE_BODY_BYTES
from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.datasets.readers import DatasetReaders
from aliquot.live.invocations.activations import error, failure, note
from aliquot.live.invocations.call import Call, SharedArguments
from aliquot.live.invocations.call_registry import CallRegistry
from aliquot.live.invocations.launches import activation_env
from aliquot.live.invocations.sandbox_assignments import SandboxAssignment, SandboxAssignments
from aliquot.live.invocations.sequences.payloads import defaults_of
from aliquot.live.node.base import BatchItem, BufferHandle, Node, Outcome, RunRequest, Status
from aliquot.live.node.states import EXITED, OUT_OF_MEMORY
from aliquot.runtime.batch import HANDED, JSON, OBJECTS, PICKLED

log = structlog.get_logger("aliquot.service")

_NOT_SHARED = SharedArguments()
_STATUSES = {int(status): status for status in Status}
_OUT_OF_MEMORY = error(OUT_OF_MEMORY)


class RaisedInBatch(msgspec.Struct):
    """The error of a whole batch, as `aliquot.runtime.batch` describes it."""

    error: str
    type: str = ""
    out_of_memory: bool = msgspec.field(default=False, name="outOfMemory")


_read_items = msgspec.json.Decoder(list[tuple[int, Raw, int]]).decode
_read_error = msgspec.json.Decoder(RaisedInBatch).decode


class BatchOutput:
    """Passes the lines that a batch prints to the followers of all its calls."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def printed(self, line: str) -> None:
        for call in self._calls:
            call.printed(line)


class BatchRuns:
    """Runs of functions that take the items of a batch, also of batches with a single call."""

    def __init__(
        self,
        node: Node,
        registry: CallRegistry,
        assignments: SandboxAssignments,
        readers: DatasetReaders,
        *,
        post: Callable[[Event], None],
        end: Callable[[Call, Outcome], None],
        give_up: Callable[[int], None],
        now: Callable[[], float],
    ) -> None:
        """`end` ends a call with its outcome. `give_up` stops a sandbox, so that its calls run elsewhere."""
        self._node = node
        self._registry = registry
        self._assignments = assignments
        self._readers = readers
        self._post = post
        self._end = end
        self._give_up = give_up
        self._now = now

    def begin(self, command: Run, assignment: SandboxAssignment) -> None:
        """Run the calls of the command. Datasets are read in the name of the first."""
        calls = [self._registry.calls[name] for name in (command.invocation, *command.riders)]
        first = calls[0]
        assignment.call, assignment.riders, assignment.runs = first, calls[1:], True
        for call in calls:
            call.run.may_retry = False
            limited = call.objective or call.stage
            if limited is not None:
                limited.members = len(calls)
            call.action = assignment.resolved_for(call.function).action
            call.run.begun_s = self._now()
            call.run.init_s = assignment.init_s if call.run.start is Start.COLD else None
            if call.run.init_s is not None:
                for line in assignment.logs:
                    call.printed(line)
        if assignment.has_view:
            first.run.view_sandbox = command.sandbox
            tenant = first.namespace.name
            self._readers.begin_run(command.sandbox, tenant, first.function, first.id, first.session)
        if any(call.queue_entry for call in calls):
            self._registry.spawn(self._run_durably(command.sandbox, calls))
        else:
            self._node.run(command.sandbox, _batch_request(calls, assignment))

    async def _run_durably(self, sandbox: int, calls: Sequence[Call]) -> None:
        """Run a batch once the starts of its queued calls are on disk."""
        for call in calls:
            if call.queue_entry:
                await self._registry.mark_started(call.queue_entry)
                if not await self._registry.load_payload(call):
                    log.error("the payload of a queued call is not in the store", **call.log_facts)
                    self._give_up(sandbox)
                    return
        assignment = self._assignments.get(sandbox)
        if assignment is None or assignment.calls != calls:  # it was lost meanwhile
            return
        self._node.run(sandbox, _batch_request(calls, assignment))
        for call in calls:
            if call.durable and call.queue_entry == call.id:  # if the run has to be repeated, it is read again
                call.leave_payload_on_disk()

    def finished(self, sandbox: int, assignment: SandboxAssignment, outcome: Outcome) -> None:
        """Give each call its own outcome. If the function raised, calls that may run again do so alone."""
        calls, outcome = assignment.calls, assignment.with_logs(outcome)
        assignment.call, assignment.riders, assignment.runs = None, [], False
        split = _split(outcome, calls)
        raised = _read_raised(outcome) if split is None else None
        again = [] if raised is None else _may_run_again(calls)
        out_of_memory = raised is not None and raised.out_of_memory
        names = tuple(call.id for call in again)
        self._post(RunFinished(calls[0].id, sandbox, outcome.run_s, 0, names, out_of_memory))
        if split is None:
            split = [_raised_outcome(outcome, raised, call) for call in calls]
        for call, own in zip(calls, split, strict=True):
            if call in again:
                self._begin_over(call)
            elif not call.ended:
                _note_size(call, len(calls))
                self._end(call, own)

    def lost(self, assignment: SandboxAssignment, outcome: Outcome) -> tuple[tuple[str, ...], bool]:
        """Give the outcome of a lost sandbox to the calls of its batch.

        Return the names of those that may run again alone, and whether the batch ran out of memory.
        """
        calls, outcome = assignment.calls, assignment.with_logs(outcome)
        again = _may_run_again(calls) if assignment.runs else []
        for call in calls:
            if call in again:
                self._begin_over(call)
            elif not call.ended:
                call.outcome = outcome
                if assignment.runs:
                    _note_size(call, len(calls))
        return tuple(call.id for call in again), bytes(outcome.result) == _OUT_OF_MEMORY

    def _begin_over(self, call: Call) -> None:
        """Reset a call whose batch failed, so that it can run again."""
        call.run.begun_s = 0
        if call.run.view_sandbox is not None:
            self._readers.end_run(call.run.view_sandbox, call.id, lambda _: None)
            call.run.view_sandbox = None


def _may_run_again(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of a failed batch whose function may run twice. One that was alone has its own error."""
    if len(calls) == 1:
        return []
    action = calls[0].action
    repeatable = action.annotation("pure") is True or bool(reruns_of(action))
    return [call for call in calls if repeatable and not call.ended]


def _note_size(call: Call, size: int) -> None:
    if size > 1:
        call.notes += note("batchSize", size)


def _batch_request(calls: Sequence[Call], assignment: SandboxAssignment) -> RunRequest:
    """Return the request to run these calls together. Its environment is that of the first."""
    first = calls[0]
    limits = first.action.limits
    items, payloads, buffers = [], [], list[BufferHandle]()
    for call in calls:
        shared = call.shared or _NOT_SHARED
        payload = call.payload if shared.buffer is None else shared.buffer.inlined(call.payload)
        form = HANDED if shared.handed else PICKLED if call.pickled else JSON
        if shared.objects is not None:
            form = OBJECTS
            buffers += shared.objects
        defaults = defaults_of(call.action) if shared.handed else {}
        items.append(
            BatchItem(
                call.id, form, len(payload), call.task is not None, shared.hands_on, defaults, len(shared.objects or ())
            )
        )
        payloads.append(payload)
    return RunRequest(
        first.id,
        payloads[0] if len(payloads) == 1 else b"".join(payloads),
        pickled=False,
        env=activation_env(first, assignment.key_for(first.resolved), now_ms()),
        timeout_ms=limits.timeout,
        logs_bytes=limits.logs * MIB,
        listener=first if len(calls) == 1 else BatchOutput(calls),
        items=tuple(items),
        objects=tuple(buffers) or None,
    )


def _split(outcome: Outcome, calls: Sequence[Call]) -> list[Outcome] | None:
    """Return the outcome of each call, or None if the reply is not a list of them."""
    try:
        items = _read_items(outcome.result)
    except msgspec.DecodeError:
        return None
    pickled = memoryview(outcome.pickled or b"")
    if len(items) != len(calls) or sum(size for _, _, size in items) != len(pickled):
        return None
    made, at = [], 0
    for status, result, size in items:
        own = bytes(pickled[at : at + size]) if size else None
        known = _STATUSES.get(status, Status.DEVELOPER_ERROR)
        body = bytes(result)
        kept = memoryview(body) if len(body) > LARGE_BODY_BYTES else body
        made.append(replace(outcome, status=known, result=kept, pickled=own))
        at += size
    return made


def _read_raised(outcome: Outcome) -> RaisedInBatch | None:
    if outcome.status is not Status.APPLICATION_ERROR:
        return None
    try:
        return _read_error(outcome.result)
    except msgspec.DecodeError:
        return None


def _raised_outcome(outcome: Outcome, raised: RaisedInBatch | None, call: Call) -> Outcome:
    """Return the exception of the whole batch as its caller takes it."""
    if raised is None:  # the function has written to its own channel
        return replace(failure(Status.DEVELOPER_ERROR, EXITED), run_s=outcome.run_s, logs=outcome.logs)
    if call.pickled:
        return replace(outcome, result=error(f"{raised.type}: {raised.error}"))
    if call.task is not None:
        described = {"error": {"name": raised.type, "message": raised.error}}
        return replace(outcome, result=msgspec.json.encode(described), pickled=None)
    return replace(outcome, result=error(raised.error), pickled=None)
