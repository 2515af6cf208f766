"""Perform the scheduler's commands on the node, and report events of the node and the fabric to the scheduler."""

from collections.abc import Callable

import structlog
from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.commands import (
    BreakPromise,
    CancelFetch,
    Command,
    Complete,
    Dispatch,
    Fail,
    Fetch,
    Predict,
    Promise,
    Reject,
    Run,
    RunNext,
    Start,
    StartSandbox,
    StopSandbox,
)
from aliquot.core.events import (
    DeviceLost,
    Event,
    MemoryLoaded,
    RunFinished,
    RunsTakenBack,
    SandboxLost,
    SandboxStarted,
)
from aliquot.core.places import Place
from aliquot.live.catalogue.images import RuntimeImage
from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.catalogue.secrets import SecretRegistry
from aliquot.live.catalogue.volume_needs import reason_no_volumes
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.invocations.activations import failure
from aliquot.live.invocations.batch_runs import BatchRuns
from aliquot.live.invocations.call import Call, ChainCall
from aliquot.live.invocations.call_finisher import CallFinisher
from aliquot.live.invocations.call_registry import CallRegistry
from aliquot.live.invocations.flows import Flows
from aliquot.live.invocations.kernel_objects import KernelObjects
from aliquot.live.invocations.launches import activation_env, launch, run_request
from aliquot.live.invocations.limited_executions import LimitedExecutions
from aliquot.live.invocations.nested_calls import NestedCalls
from aliquot.live.invocations.node_commands import NodeCommands
from aliquot.live.invocations.node_events import NodeEvents
from aliquot.live.invocations.promise_records import PromiseRecords, refused_outcome
from aliquot.live.invocations.run_output import RunOutput
from aliquot.live.invocations.sandbox_assignments import (
    SandboxAssignment,
    SandboxAssignments,
    note_hidden_start,
    tell_start,
)
from aliquot.live.node.base import NestedRun, Node, Outcome, Status

log = structlog.get_logger("aliquot.service")

MAX_ATTEMPTS = 3  # of a call whose sandbox is lost before its run begins
LOST = "its sandbox was lost"


class CommandPerformer:
    """Performs commands. It implements `NodeListener` and `FabricListener`."""

    def __init__(
        self,
        node: Node,
        fabric: Fabric,
        registry: CallRegistry,
        assignments: SandboxAssignments,
        finisher: CallFinisher,
        flows: Flows,
        *,
        wake: Callable[[Place, Start], None],
        post: Callable[[Event], None],
        arrive: Callable[[Call], None],
        now: Callable[[], float],
        api_host: str,
        images: tuple[RuntimeImage, ...],
        secrets: SecretRegistry,
        objects: KernelObjects,
        executions: LimitedExecutions,
    ) -> None:
        """`post` passes events to the scheduler, and `arrive` reports the arrival of a call that is tried again.

        `wake` is called with the devices of a run that is about to begin.
        """
        self._node = node
        self._fabric = fabric
        self._registry = registry
        self._assignments = assignments
        self._finisher = finisher
        self._flows = flows
        self._wake, self._post, self._arrive, self._now = wake, post, arrive, now
        self._api_host = api_host
        self._images = images
        self._secrets = secrets
        self._objects, self._executions = objects, executions
        self.output = RunOutput(assignments, node)
        self.node_events = NodeEvents(assignments, post, now)
        self.promises = PromiseRecords(lambda: node.devices, registry.calls, executions, now)
        self.nested_calls = NestedCalls(registry, finisher, fabric.readers, now)
        of_sandboxes = (node, registry, assignments, fabric.readers)
        self._batches = BatchRuns(*of_sandboxes, post=post, end=self.end, give_up=self._give_up, now=now)
        self.performers: dict[type[Command], Callable[..., None]] = {  # one for each kind of command
            Dispatch: self._dispatch,
            StartSandbox: self._start_sandbox,
            StopSandbox: self._stop_sandbox,
            Run: self._run,
            RunNext: self._run_next,
            Complete: lambda _: None,  # the caller was answered when the run finished
            Fail: self._fail,
            Reject: self._reject,
            Promise: self.promises.promised,
            BreakPromise: self.promises.broken,
            Predict: fabric.predict,
            Fetch: fabric.fetch,
            CancelFetch: fabric.cancel,
            **NodeCommands(node, post).performers(),
        }

    # --- NodeListener -----------------------------------------------------------------------------------

    def sandbox_started(self, sandbox: int, init_s: float, logs: tuple[str, ...]) -> None:
        assignment = self._assignments[sandbox]
        assignment.init_s, assignment.logs = init_s, logs
        self._post(SandboxStarted(sandbox))

    def sandbox_lost(self, sandbox: int, outcome: Outcome) -> None:
        assignment = self._assignments.close(sandbox)
        if assignment is not None and assignment.riders:
            self._post(SandboxLost(sandbox, LOST, *self._batches.lost(assignment, outcome)))
            return
        if assignment is not None and assignment.call is not None:
            assignment.call.outcome = assignment.with_logs(outcome)
        elif assignment is not None and assignment.early:
            first = assignment.functions.members[0]
            log.warning(
                "a start ahead of calls failed", tenant=first.tenant, function=first.function, status=outcome.status
            )
        self._post(SandboxLost(sandbox, LOST))

    def sandbox_refused(self, sandbox: int) -> None:
        assignment = self._assignments.close(sandbox)
        for call in () if assignment is None else assignment.calls:
            call.run.may_retry = True
        self._post(SandboxLost(sandbox, LOST))

    def memory_loaded(self, sandbox: int) -> None:
        self._post(MemoryLoaded(sandbox))

    def device_lost(self, device: str, why: str) -> None:
        log.error("a device was lost", device=device, why=why)
        self._post(DeviceLost(device))

    def run_finished(self, sandbox: int, outcome: Outcome) -> None:
        assignment = self._assignments[sandbox]
        call = assignment.call
        if call is None:
            log.error("a run finished that was not requested", sandbox=sandbox)
            return
        if assignment.batches:
            self._batches.finished(sandbox, assignment, outcome)
            if assignment.view_lost:
                self._give_up(sandbox)
            return
        if assignment.ahead:
            following = assignment.call = assignment.ahead.pop(0)
            following.run.begun_s = self._now()
        else:
            assignment.call, assignment.runs = None, False
        # The caller is answered before the scheduler's step, because a finished run always completes its call.
        run_s = outcome.run_s if not isinstance(call, ChainCall) else self._now() - call.run.begun_s
        self._post(RunFinished(call.id, sandbox, run_s, outcome.inside_s))
        if assignment.view_lost:
            self._give_up(sandbox)
        outcome = assignment.with_logs(outcome) if assignment.logs else outcome
        if call.objects is not None and call.objects.memories and outcome.status is Status.SUCCESS:
            self._registry.spawn(self._objects.store(call, outcome, self.end))
        else:
            self.end(call, outcome)

    def runs_taken_back(self, sandbox: int, count: int) -> None:
        ahead = self._assignments[sandbox].ahead
        begun = len(ahead) - count
        self._post(RunsTakenBack(sandbox, tuple(call.id for call in ahead[begun:])))
        del ahead[begun:]

    def began_inside(self, sandbox: int, function: str) -> NestedRun | str:
        return self.nested_calls.call(self._assignments[sandbox], function)

    def ended_inside(self, sandbox: int, outcome: Outcome) -> NestedRun | None:
        return self.nested_calls.ended(sandbox, self._assignments[sandbox], outcome)

    def end(self, call: Call, outcome: Outcome) -> None:
        """End a call with its outcome."""
        if (call.objective is not None or call.stage is not None) and not call.ended:
            self.promises.note(call)
        if isinstance(call, ChainCall):
            call.outcome, call.ended = outcome, True
            self.nested_calls.finish(call, outcome)
            self._registry.forget(call)
        else:
            self._finisher.finish(call, self.nested_calls.finish(call, outcome) if call.run.nested else outcome)

    # --- FabricListener ---------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Pass an event to the scheduler."""
        self._post(event)

    def user_of(self, tenant: str, session: str) -> str:
        """Return the user of a session, or an empty text."""
        return self._registry.sessions.user_of(tenant, session)

    def view_lost(self, sandbox: int) -> None:
        """Stop a sandbox that lost its datasets or volumes. A current run may finish: it may need no more files."""
        assignment = self._assignments.get(sandbox)
        if assignment is not None and assignment.runs:
            assignment.view_lost = True
        elif assignment is not None:
            self._give_up(sandbox)

    def _give_up(self, sandbox: int) -> None:
        """Stop a sandbox, and let the call it was given run elsewhere."""
        self._node.stop_sandbox(sandbox)
        self.sandbox_refused(sandbox)

    # --- commands of the scheduler ----------------------------------------------------------------------

    def _dispatch(self, command: Dispatch) -> None:
        call = self._registry.calls[command.invocation]
        call.run.place, call.run.start, call.reason = command.place, command.start, command.reason
        self._wake(command.place, command.start)
        limited = call.objective or call.stage
        if limited is not None:
            limited.dispatched_s = self._now()
        assignment = self._assignments.get(command.sandbox)
        if assignment is not None and not assignment.runs:
            if assignment.batches and assignment.call is not None and assignment.call is not call:
                assignment.riders.append(call)
            else:
                assignment.call = call

    def _start_sandbox(self, command: StartSandbox) -> None:
        """Start a sandbox for its first call, which is described in its environment, or ahead of calls without one."""
        assignment = self._assignments.open(command.sandbox, self._flows[command.tenant, command.function])
        if not command.invocation:
            assignment.early = True
            self._launch(command, assignment, assignment.functions.members[0], {}, b"")
            return
        call = assignment.call = self._registry.calls[command.invocation]
        if call.queue_entry:
            self._registry.spawn(self._registry.count_start(call.queue_entry))
        first = assignment.resolved_for(call.function)
        env = activation_env(call, assignment.key_for(first), now_ms())
        self._launch(command, assignment, first, env, b"" if call.pickled else call.payload)

    def _launch(
        self,
        command: StartSandbox,
        assignment: SandboxAssignment,
        first: ResolvedAction,
        env: dict[str, str],
        payload: bytes | memoryview,
    ) -> None:
        """Start the sandbox on the node, unless something that its functions need is missing."""
        sandbox = command.sandbox
        for member in assignment.functions.members:
            whose = member.action, member.tenant
            if reason := self._secrets.reason_unavailable(*whose) or reason_no_volumes(self._fabric.volumes, *whose):
                self.sandbox_lost(sandbox, failure(Status.DEVELOPER_ERROR, reason))
                return
        where = (command.place, self._api_host, self._images)
        made = launch(assignment.functions, first, *where, env, payload, self._secrets.variables_of)
        if made.datasets:  # checked again, because another namespace's action sees the caller's datasets
            if (reason := self._fabric.datasets.reason_unavailable(made.tenant, made.datasets)) is not None:
                self.sandbox_lost(sandbox, failure(Status.DEVELOPER_ERROR, reason))
                return
            assignment.has_view = True
        self._node.start_sandbox(sandbox, self._objects.graphs.add(made, first.action) if made.module else made)

    def _stop_sandbox(self, command: StopSandbox) -> None:
        self._assignments.close(command.sandbox)
        self._node.stop_sandbox(command.sandbox)

    def _run_next(self, command: RunNext) -> None:
        """Hand a call ahead to its busy sandbox. Where this is not possible, the scheduler gets it back at once."""
        call = self._registry.calls[command.invocation]
        assignment = self._assignments.get(command.sandbox)
        if assignment is None:  # the loss of the sandbox is on its way to the scheduler
            return
        current = assignment.call
        if not assignment.runs or current is None:  # it has finished since
            self._run(command)
            return
        call.action = assignment.resolved_for(call.function).action
        durable = call.queue_entry or current.queue_entry  # its start must be on disk before it runs
        if durable or not self._node.run_next(command.sandbox, run_request(call, assignment, now_ms())):
            self._post(RunsTakenBack(command.sandbox, (call.id,)))
            return
        call.run.may_retry, call.run.init_s = False, None
        assignment.ahead.append(call)

    def _run(self, command: Run | RunNext) -> None:
        call = self._registry.calls[command.invocation]
        assignment = self._assignments.get(command.sandbox)
        if assignment is None:  # it died after the scheduler had chosen it, so the call has not begun
            for name in (command.invocation, *(command.riders if isinstance(command, Run) else ())):
                self._registry.calls[name].run.may_retry = True
            return
        if assignment.early:
            note_hidden_start(call, assignment)
        if assignment.batches and isinstance(command, Run):
            self._batches.begin(command, assignment)
            return
        assignment.call, assignment.runs = call, True
        if not assignment.serves(call):  # the function joined the group after the sandbox started
            self._give_up(command.sandbox)
            return
        call.run.may_retry = False
        call.action = assignment.resolved_for(call.function).action
        call.run.begun_s = self._now()
        tell_start(call, assignment)
        if isinstance(call, ChainCall):
            call.run.view_sandbox = command.sandbox if assignment.has_view else None
            self.nested_calls.begin_chain(command.sandbox, assignment, call)
        elif assignment.has_view:
            call.run.view_sandbox = command.sandbox
            self._fabric.readers.begin_run(command.sandbox, call.namespace.name, call.function, call.id, call.session)
        if call.queue_entry:
            self._registry.spawn(self._run_durably(command.sandbox, call))
        else:
            self._node.run(command.sandbox, run_request(call, assignment, now_ms()))

    async def _run_durably(self, sandbox: int, call: Call) -> None:
        """Run a queued call once its start is on disk, so that a crash does not make it run twice."""
        await self._registry.mark_started(call.queue_entry)
        has_payload = await self._registry.load_payload(call)
        assignment = self._assignments.get(sandbox)
        if assignment is None or assignment.call is not call:  # it was cancelled or lost meanwhile
            return
        if not has_payload:
            log.error("the payload of a queued call is not in the store", **call.log_facts)
            self._give_up(sandbox)
            return
        if (problem := self._objects.problem(call)) is not None:
            self.run_finished(sandbox, problem)
            return
        self._node.run(sandbox, run_request(call, assignment, now_ms()))
        if call.durable and call.queue_entry == call.id:  # if the run has to be repeated, it is read again
            call.leave_payload_on_disk()

    def _fail(self, command: Fail) -> None:
        call = self._registry.calls.get(command.invocation)
        if call is None or call.ended:  # it was cancelled when it had just finished
            return
        if call.parked:
            call.reason = command.reason
            self._registry.forget(call)
        elif call.run.may_retry and call.run.attempts < max(MAX_ATTEMPTS, 1 + (reruns_of(call.action) or 0)):
            call.run.may_retry = False
            call.run.attempts += 1
            self._arrive(call)
        else:
            dropped = call.objective is not None and call.objective.dropped
            ended = replace(failure(Status.INTERNAL_ERROR, command.reason), timed_out=dropped)
            innermost, *outer = self.output.of_run(call)
            self.end(call, call.outcome or replace(ended, logs=innermost, outer=tuple(outer)))

    def fail_waiting(self, call: Call, reason: str, outcome: Outcome | None) -> None:
        """End a call that waits outside of the scheduler. It is ended, tried again or parked like one inside."""
        call.outcome = outcome
        self._fail(Fail(call.id, reason))

    def _reject(self, command: Reject) -> None:
        if self._executions.refused(command):
            return
        call = self._registry.calls[command.invocation]
        call.reason = command.reason
        if call.objective is not None:
            call.objective.refusal = command.refusal
        if not call.durable:
            self.promises.count(call)
            self._registry.forget(call)
        elif command.refusal is not None:
            self.end(call, refused_outcome(command))
        else:
            self.end(call, failure(Status.INTERNAL_ERROR, command.reason))
