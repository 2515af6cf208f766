"""The service: tells the core what happens, and has done what the core commands. Nothing is decided here.

It stands between the gateway, whose `Platform` it is, the node, to which it listens, and the store.
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from msgspec.structs import replace

from aliquot.config import PolicySettings
from aliquot.core.commands import (
    CancelFetch,
    Command,
    Complete,
    Dispatch,
    Fail,
    Fetch,
    LoadMemory,
    Predict,
    Reject,
    Run,
    SetSlice,
    Start,
    StartSandbox,
    StopSandbox,
    UnloadMemory,
)
from aliquot.core.events import (
    DeviceAdded,
    DeviceLost,
    HostMemorySet,
    InvocationArrived,
    InvocationCancelled,
    MemoryLoaded,
    RunFinished,
    SandboxLost,
    SandboxStarted,
    SessionEnded,
    TenantWeightSet,
)
from aliquot.core.model import CPU
from aliquot.live.catalogue.images import Image
from aliquot.live.catalogue.needs import needs_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.invocations.activations import failure
from aliquot.live.invocations.call import Call, ChainCall, Follower
from aliquot.live.invocations.call_finisher import CallFinisher
from aliquot.live.invocations.call_registry import STOPPING, CallRegistry
from aliquot.live.invocations.deployments import Deployments
from aliquot.live.invocations.engine import Engine
from aliquot.live.invocations.flows import Flows
from aliquot.live.invocations.launches import activation_env, launch, run_request
from aliquot.live.invocations.nested_calls import NestedCalls
from aliquot.live.invocations.run_output import RunOutput
from aliquot.live.invocations.sandbox_assignments import SandboxAssignments
from aliquot.live.invocations.status import describe
from aliquot.live.node.base import NestedRun, Node, Outcome, Status
from aliquot.live.store.base import Store
from aliquot.live.store.clock import now_ms
from aliquot.live.store.records import Action, Activation, Namespace
from aliquot.live.usage.figures import with_usage
from aliquot.live.usage.sampler import Sampler

log = structlog.get_logger("aliquot.service")

MAX_ATTEMPTS = 3  # for a call whose sandbox is gone before the call could begin
LOST = "its sandbox was lost"
_ON_CPU = (CPU,)


class Service:
    def __init__(
        self,
        settings: PolicySettings,
        node: Node,
        store: Store,
        *,
        host_memory_bytes: int,
        fabric: Fabric | None = None,
    ) -> None:
        self._engine = Engine(settings, store, self._perform)
        self.scheduler = self._engine.scheduler
        self._node = node
        self._store = store
        self._host_memory_bytes = host_memory_bytes
        self.api_host = ""
        self.images: tuple[Image, ...] = ()  # what stands for those that blackboxes name
        self.registry = CallRegistry(store, self._engine.now)
        self.calls = self.registry.calls
        self.sessions = self.registry.sessions
        self.assignments = SandboxAssignments()
        self._outputs = RunOutput(self.assignments, node)
        self.usage = Sampler(node, self.scheduler, self._engine.post)
        self.fabric = fabric or Fabric(store)
        self.fabric.post = self._engine.post
        self.fabric.readers.on_blind = self._blinded
        self.fabric.readers.user_of = self.sessions.user_of
        policies = "+".join(self.scheduler.policy_names)
        self.finisher = CallFinisher(policies, self.registry, self.fabric.readers, self._engine.now)
        self.nested_calls = NestedCalls(self.registry, self.finisher, self.fabric.readers, self._engine.now)
        self.flows = Flows()
        self._deployments = Deployments(self.flows, self.calls, self._engine.post, self.finisher.forget)
        self._performers: dict[type[Command], Callable[..., None]] = {
            Dispatch: self._dispatch,
            StartSandbox: self._start_sandbox,
            LoadMemory: lambda command: node.load(command.sandbox),
            UnloadMemory: lambda command: node.unload(command.sandbox),
            StopSandbox: self._stop_sandbox,
            SetSlice: lambda command: node.set_slice(command.sandbox, command.share, command.ceiling),
            Run: self._run,
            Complete: lambda _: None,  # it has been answered
            Fail: self._fail,
            Reject: self._reject,
            Predict: self.fabric.predict,
            Fetch: self.fabric.fetch,
            CancelFetch: self.fabric.cancel,
        }

    # --- life -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Tell the core what there is to run on."""
        await self.fabric.start()
        await self._node.start(self)
        self._engine.post(HostMemorySet(self._host_memory_bytes))
        for device in self._node.devices:
            self._engine.post(DeviceAdded(device))

    async def drain(self, grace_s: float) -> None:
        """Take nothing more; let what is awaited or runs come to its end. What is accepted and waits, waits on disk."""
        self.registry.stopping = True
        for call in self.calls.values():
            if call.begins and not call.run.begun_s:
                call.parked = True
                self._engine.post(InvocationCancelled(call.id, STOPPING))
        await self.registry.wait_for_all(grace_s)

    async def stop(self) -> None:
        """End every sandbox. The store stays open: it is not the service's."""
        self.registry.stopping = True
        self._engine.stop()
        self.usage.stop()
        await self._node.stop()
        await self.fabric.stop()
        await self.registry.stop()

    # --- what the gateway asks --------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        self.registry.check_open()
        self.enqueue(call)

    async def accept(self, call: Call) -> None:
        self.registry.check_open()
        call.begins = call.id
        await self.registry.keep(call)
        self.enqueue(call)

    async def accept_all(self, calls: Sequence[Call], record: Activation) -> None:
        await self.registry.keep_all(calls, record)
        for call in calls:
            self.enqueue(call)

    async def detach(self, call: Call) -> None:
        if call.activation is None and not call.durable:
            call.begins = call.id
            await self.registry.keep(call)

    def cancel(self, namespace: str, activation_id: str) -> bool:
        call = self.calls.get(activation_id)
        if call is None or call.namespace.name != namespace:
            return False
        outermost = call.outermost
        outermost.run.unbegun = False  # it is not to be tried again
        self._engine.post(InvocationCancelled(outermost.id))
        return True

    def follow(self, namespace: str, activation_id: str, follower: Follower) -> bool:
        call = self.calls.get(activation_id)
        if call is None or call.namespace.name != namespace:
            return False
        for line in self._outputs.own(call):
            follower.printed(line)
        call.follow(follower)
        return True

    async def activation(self, namespace: str, activation_id: str) -> Activation | None:
        return await self._store.activation(namespace, activation_id)

    def deploy(self, resolved: ResolvedAction) -> None:
        functions = self._deployments.deploy(resolved)
        self._node.prepare(launch(functions, resolved, _ON_CPU, self.api_host, self.images))

    def remove(self, tenant: str, function: str) -> None:
        self._deployments.remove(tenant, function)

    def misfit(self, action: Action) -> str | None:
        """Neither what it asks for nor how far it may go may be more than any device has."""
        if names := needs_of(action).datasets:
            complaint = self.fabric.datasets.complaint(action.namespace, names)
            if complaint is not None:
                return complaint
        return self.flows.complaint(ResolvedAction.own(action), self._node.devices)

    def set_weight(self, namespace: Namespace) -> None:
        self._engine.post(TenantWeightSet(namespace.name, namespace.weight))

    def status(self) -> dict[str, Any]:
        found = describe(self.scheduler, self._node.usage(), calls=len(self.calls), stopping=self.registry.stopping)
        self.usage.refresh()
        if self.fabric.figures:
            found["fabric"] = self.fabric.figures
        return with_usage(found, self.usage)

    def enqueue(self, call: Call) -> None:
        """The call is the core's from now on."""
        self.registry.add(call)
        self._post_arrival(call)

    def _post_arrival(self, call: Call) -> None:
        """To the core a session that has ended is none: it would take it for a new one."""
        tenant, session = call.namespace.name, call.session or None
        if session is not None and self.sessions.find(tenant, session) is None:
            session = None
        self._engine.post(InvocationArrived(call.id, tenant, self.flows.flow(tenant, call.function), session=session))

    def begin_session(self, namespace: str, session_id: str) -> None:
        self.fabric.session_began(namespace, session_id)

    def end_session(self, namespace: str, session_id: str) -> None:
        self._engine.post(SessionEnded(namespace, session_id))
        self.fabric.session_ended(namespace, session_id)

    # --- what the node tells ----------------------------------------------------------------------------

    def sandbox_started(self, sandbox: int, init_s: float, logs: tuple[str, ...]) -> None:
        assignment = self.assignments[sandbox]
        assignment.init_s, assignment.logs = init_s, logs
        self._engine.post(SandboxStarted(sandbox))

    def sandbox_lost(self, sandbox: int, outcome: Outcome) -> None:
        assignment = self.assignments.close(sandbox)
        if assignment is not None and assignment.call is not None:
            assignment.call.outcome = assignment.with_logs(outcome)
        self._engine.post(SandboxLost(sandbox, LOST))

    def sandbox_refused(self, sandbox: int) -> None:
        assignment = self.assignments.close(sandbox)
        if assignment is not None and assignment.call is not None:
            assignment.call.run.unbegun = True
        self._engine.post(SandboxLost(sandbox, LOST))

    def memory_loaded(self, sandbox: int) -> None:
        self._engine.post(MemoryLoaded(sandbox))

    def device_lost(self, device: str, why: str) -> None:
        log.error("a device was lost", device=device, why=why)
        self._engine.post(DeviceLost(device))

    def run_finished(self, sandbox: int, outcome: Outcome) -> None:
        assignment = self.assignments[sandbox]
        call, assignment.call = assignment.call, None
        if call is None:
            log.error("a run finished that nobody asked for", sandbox=sandbox)
            return
        # The answer need not wait for the core's turn: a run that has finished completes its call, whatever is decided.
        run_s = outcome.run_s if not isinstance(call, ChainCall) else self._engine.now() - call.run.begun_s
        self._engine.post(RunFinished(call.id, sandbox, run_s))
        if assignment.blind:
            self._give_up(sandbox)
        self._end(call, assignment.with_logs(outcome) if assignment.logs else outcome)

    def began_inside(self, sandbox: int, function: str) -> NestedRun | str:
        return self.nested_calls.call(self.assignments[sandbox], function)

    def ended_inside(self, sandbox: int, outcome: Outcome) -> NestedRun | None:
        return self.nested_calls.ended(sandbox, self.assignments[sandbox], outcome)

    def _end(self, call: Call, outcome: Outcome) -> None:
        if isinstance(call, ChainCall):
            call.outcome, call.ended = outcome, True
            self.nested_calls.finish(call, outcome)
            self.registry.forget(call)
        else:
            self.finisher.finish(call, self.nested_calls.finish(call, outcome) if call.run.nested else outcome)

    # --- what the fabric tells --------------------------------------------------------------------------

    def _blinded(self, sandbox: int) -> None:
        """It cannot see its datasets any more. What it runs may be past reading; it serves nobody after that."""
        assignment = self.assignments.get(sandbox)
        if assignment is not None and assignment.call is not None and assignment.call.run.reads == sandbox:
            assignment.blind = True
        elif assignment is not None:
            self._give_up(sandbox)

    def _give_up(self, sandbox: int) -> None:
        self._node.stop_sandbox(sandbox)
        self.sandbox_refused(sandbox)

    # --- what the core commands -------------------------------------------------------------------------

    def _perform(self, command: Command) -> None:
        self._performers[type(command)](command)

    def _dispatch(self, command: Dispatch) -> None:
        call = self.calls[command.invocation]
        call.run.place, call.run.start, call.reason = command.place, command.start, command.reason
        if command.place != _ON_CPU:
            self.usage.wake(command.place)
        assignment = self.assignments.get(command.sandbox)
        if assignment is not None:
            assignment.call = call

    def _start_sandbox(self, command: StartSandbox) -> None:
        """Start a sandbox for its first call, and tell its code which call that is."""
        sandbox, call = command.sandbox, self.calls[command.invocation]
        assignment = self.assignments.open(sandbox, self.flows[command.tenant, command.function])
        assignment.call = call
        first = assignment.resolved_for(call.function)
        env = activation_env(call, assignment.key_for(first), now_ms())
        made = launch(assignment.functions, first, command.place, self.api_host, self.images, env)
        if made.datasets:  # its own were looked at when it was deployed; others' actions see what the caller sees
            if (complaint := self.fabric.datasets.complaint(made.tenant, made.datasets)) is not None:
                self.sandbox_lost(sandbox, failure(Status.DEVELOPER_ERROR, complaint))
                return
            assignment.reads = True
        self._node.start_sandbox(sandbox, made)

    def _stop_sandbox(self, command: StopSandbox) -> None:
        self.assignments.close(command.sandbox)
        self._node.stop_sandbox(command.sandbox)

    def _run(self, command: Run) -> None:
        call = self.calls[command.invocation]
        assignment = self.assignments.get(command.sandbox)
        if assignment is None:  # it died after the core had chosen it: that is in the inbox, and the call has not begun
            call.run.unbegun = True
            return
        assignment.call = call
        if not assignment.serves(call):  # its function came into the group later
            self._give_up(command.sandbox)
            return
        call.run.unbegun = False
        call.action = assignment.resolved_for(call.function).action
        call.run.begun_s = self._engine.now()
        if call.run.start is Start.COLD:
            call.run.init_s = assignment.init_s
            for line in assignment.logs:
                call.printed(line)
        else:
            call.run.init_s = None
        if isinstance(call, ChainCall):
            call.run.reads = command.sandbox if assignment.reads else None
            self.nested_calls.begin_chain(command.sandbox, assignment, call)
        elif assignment.reads:
            call.run.reads = command.sandbox
            self.fabric.readers.begin_run(command.sandbox, call.namespace.name, call.function, call.id, call.session)
        if call.begins:
            self.registry.spawn(self._run_durably(command.sandbox, call))
        else:
            self._node.run(command.sandbox, run_request(call, assignment, now_ms()))

    async def _run_durably(self, sandbox: int, call: Call) -> None:
        """That the run has begun must be on disk before it begins: after a crash it must not begin again."""
        await self.registry.mark_started(call.begins)
        assignment = self.assignments.get(sandbox)
        if assignment is not None and assignment.call is call:  # neither cancelled nor lost meanwhile
            self._node.run(sandbox, run_request(call, assignment, now_ms()))

    def _fail(self, command: Fail) -> None:
        call = self.calls.get(command.invocation)
        if call is None or call.ended:  # it was cancelled as it finished
            return
        if call.parked:
            call.reason = command.reason
            self.registry.forget(call)
        elif call.run.unbegun and call.run.attempts < MAX_ATTEMPTS:
            call.run.unbegun = False
            call.run.attempts += 1
            self._post_arrival(call)
        else:
            ended = failure(Status.INTERNAL_ERROR, command.reason)
            innermost, *outer = self._outputs.of_run(call)
            self._end(call, call.outcome or replace(ended, logs=innermost, outer=tuple(outer)))

    def _reject(self, command: Reject) -> None:
        call = self.calls[command.invocation]
        call.reason = command.reason
        if call.durable:
            self._end(call, failure(Status.INTERNAL_ERROR, command.reason))
        else:
            self.registry.forget(call)
