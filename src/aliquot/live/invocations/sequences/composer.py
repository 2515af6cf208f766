"""The platform as the gateway sees it: passes single calls to the service and runs compositions component by component.

The scheduler sees only components. An accepted composition is one entry in the store's queue. The run of its first
component marks the entry as started, and the composition's record ends it. The records of its components are
written in the background, and are on disk before that record.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog

from aliquot.budgets import Budget, BudgetError, Reservation
from aliquot.clock import now_ms
from aliquot.core.model import GraphSpec
from aliquot.core.units import GIB
from aliquot.live.bodies.large import release
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import composition_record
from aliquot.live.invocations.call import Call, Follower, NestedCall, SharedArguments
from aliquot.live.invocations.errors import CallRefusedError, LimitsError, OverloadedError
from aliquot.live.invocations.limited_executions import LimitedExecution, not_taken
from aliquot.live.invocations.sequences.components import CompositionRun
from aliquot.live.invocations.sequences.frames import ComponentEnd, PickledResult
from aliquot.live.invocations.sequences.machine import (
    MAX_COMPONENTS,
    CloseFrame,
    Command,
    CompositionMachine,
    RunAction,
)
from aliquot.live.invocations.sequences.payloads import error
from aliquot.live.invocations.sequences.stages import sequence_graph
from aliquot.live.invocations.service import Service
from aliquot.live.invocations.sessions.live_sessions import LiveSessions
from aliquot.live.invocations.workflows.options import WorkflowSettings
from aliquot.live.invocations.workflows.workflows import Workflows
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES, Store
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import Action, Activation, FullName, Namespace

FAILED = "the composition failed: "
DEFAULT_PAYLOADS_BYTES = GIB
_log = structlog.get_logger("aliquot.composer")
ResolveFor = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`


class Composer:
    """Runs single calls and compositions. It implements `Platform`."""

    def __init__(
        self,
        service: Service,
        store: Store,
        resolve: ResolveFor,
        *,
        max_components: int = MAX_COMPONENTS,
        payloads: Budget | None = None,
        count: Callable[[Call], None] = lambda _: None,
        workflows: WorkflowSettings | None = None,
    ) -> None:
        """`payloads` is the memory for payloads. `count` is called with every component that has ended."""
        self._service = service
        self._registry = service.registry
        self._limited = service.executions
        self.capacity, self.ahead = service.capacity, service.ahead
        self._store = store
        self._resolve = resolve
        self._max_components = max_components
        self._payloads = payloads or Budget("payloads", "bytes", DEFAULT_PAYLOADS_BYTES)
        self._ids = Ids()
        self._compositions: dict[str, CompositionRun] = {}  # by the id of the call
        self._count = count
        service.nested_calls.on_ended(count)
        self.workflows = Workflows(
            service.registry, store, resolve, run_call=self.enqueue, cancel_call=self.cancel, count=count,
            payloads=self._payloads, settings=workflows or WorkflowSettings(), limited=service.executions,
            expect=service.ahead.expect_after if service.ahead.is_on else None,
        )  # fmt: skip

    # --- Platform --------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if call.resolved.composite:
            self._registry.check_open(call.namespace.owner)
            graph = self._graph(call)
            if graph is None:
                self._begin(call)
            else:
                self._limited.decide_later(call.id, self._begin_if_admitted(call, graph))
        elif call.resolved.workflow:
            self.workflows.submit(call)
        else:
            self._service.submit(call)

    async def accept(self, call: Call) -> None:
        if call.resolved.workflow:
            await self.workflows.accept(call)
            return
        if not call.resolved.composite:
            await self._service.accept(call)
            return
        self._registry.check_open(call.namespace.owner)
        graph = self._graph(call)
        limited = None if graph is None else await self._admit(call, graph)
        if graph is not None and limited is None:
            raise not_taken(call)
        try:
            await self._registry.keep(call)
        except (CallRefusedError, OverloadedError):
            self._limited.ended(call.id)
            raise
        self._begin(call, limited)

    def _graph(self, call: Call) -> GraphSpec | None:
        """Return the graph of a composition with limits, or None if it has none that count. Raises `LimitsError`."""
        if call.objective is None:
            return None
        caller = call.namespace.name
        try:
            return sequence_graph(call.resolved, lambda name: self._resolve(caller, name), self._limited.flow_of)
        except LimitsError:
            if not call.objective.declared:
                raise
            call.objective = None
            return None

    async def _admit(self, call: Call, graph: GraphSpec) -> LimitedExecution | None:
        return await self._limited.admit(call, graph, lambda _: self._drop_late(call))

    async def _begin_if_admitted(self, call: Call, graph: GraphSpec) -> None:
        limited = await self._admit(call, graph)
        if limited is not None:
            self._begin(call, limited)
        elif call.done is not None:
            call.done(call)

    def _drop_late(self, call: Call) -> None:
        """End a composition whose promise is broken."""
        composition = self._compositions.get(call.id)
        if composition is not None:
            composition.machine.cancel(call.id)
            if composition.component is not None:
                self._service.cancel(call.namespace.owner, composition.component.id)

    async def accept_all(self, calls: Sequence[Call], record: Activation, event: bytes = b"") -> None:
        await self._registry.keep_all(calls, record, event)
        for call in calls:
            if not call.resolved.composite and not call.resolved.workflow:
                call.leave_payload_on_disk()
            self.enqueue(call)

    async def detach(self, call: Call) -> None:
        if call.resolved.workflow:
            await self.workflows.detach(call)
            return
        if not call.resolved.composite:
            await self._service.detach(call)
            return
        await self._limited.decided(call.id)
        composition = self._compositions.get(call.id)
        if composition is None or call.durable:
            return
        component = composition.component
        if component is not None and not composition.begun:
            component.queue_entry = call.id  # set before the write, because the component may begin meanwhile
            call.run.begun_s = component.run.begun_s
        try:
            await self._registry.keep(call)
        except OverloadedError:
            if component is not None:
                component.queue_entry = ""
            raise

    def cancel(self, owner: str, activation_id: str) -> bool:
        composition = self._compositions.get(activation_id) or self._containing(activation_id)
        if composition is None or composition.component is None:
            return self.workflows.cancel(owner, activation_id) or self._service.cancel(owner, activation_id)
        if composition.call.namespace.owner != owner:
            return False
        composition.machine.cancel(activation_id)
        self._service.cancel(owner, composition.component.id)
        return True

    def _containing(self, activation_id: str) -> CompositionRun | None:
        """Return the composition that contains a nested composition of this id."""
        if activation_id in self._service.calls:
            return None
        containing = (one for one in self._compositions.values() if one.machine.has(activation_id))
        return next(containing, None)

    def follow(self, owner: str, activation_id: str, follower: Follower) -> bool:
        composition = self._compositions.get(activation_id)
        if composition is None:
            follow = (self.workflows.follow, self._service.follow)
            return any(one(owner, activation_id, follower) for one in follow)
        if composition.call.namespace.owner != owner:
            return False
        composition.call.follow(follower)
        return True

    def is_open(self, owner: str, activation_id: str) -> bool:
        return self._service.is_open(owner, activation_id)

    @property
    def sessions(self) -> LiveSessions:
        return self._service.sessions

    def begin_session(self, namespace: str, session_id: str) -> None:
        self._service.begin_session(namespace, session_id)

    def end_session(self, namespace: str, session_id: str) -> None:
        self._service.end_session(namespace, session_id)

    async def activation(self, owner: str, activation_id: str) -> Activation | None:
        return await self._service.activation(owner, activation_id)

    def deploy(self, resolved: ResolvedAction) -> None:
        self._service.deploy(resolved)

    def remove(self, tenant: str, function: str) -> None:
        self._service.remove(tenant, function)

    def reason_not_deployable(self, action: Action) -> str | None:
        return self._service.reason_not_deployable(action)

    def set_weight(self, namespace: Namespace) -> None:
        self._service.set_weight(namespace)

    def status(self, *, with_processes: bool = True) -> dict[str, Any]:
        return self._service.status(with_processes=with_processes)

    # --- recovery --------------------------------------------------------------------

    async def recover(self, call: Call) -> None:
        """Run a call that an earlier server accepted. A composition begins at once, so it needs its payload."""
        if call.resolved.composite or call.resolved.workflow:
            await self._registry.load_payload(call)
        self.enqueue(call)

    def enqueue(self, call: Call) -> None:
        """Run a call that is in the store's queue."""
        if call.resolved.composite:
            self._begin(call)
        elif call.resolved.workflow:
            self.workflows.enqueue(call)
        else:
            self._service.enqueue(call)

    async def end_unstarted(self, call: Call, reason: str) -> None:
        """End a call that is in the store's queue and cannot run."""
        if call.resolved.workflow:
            await self.workflows.end_unstarted(call, reason)
            return
        if not call.resolved.composite:
            await self._registry.end_durably(call, self._service.finisher.record_unstarted(call, reason))
            return
        machine = self._machine(call)
        at_ms = now_ms()
        frame = machine.open(call.id, call.resolved, call.cause, at_ms)
        close = CloseFrame(frame, Status.INTERNAL_ERROR, error(reason))
        await self._registry.end_durably(call, composition_record(call, close, at_ms))

    # --- running compositions -------------------------------------------------------------------------------------

    def _machine(self, call: Call) -> CompositionMachine:
        resolve, caller = self._resolve, call.namespace.name
        return CompositionMachine(lambda name: resolve(caller, name), self._ids, max_components=self._max_components)

    def _begin(self, call: Call, limited: LimitedExecution | None = None) -> None:
        call.queue_entry = ""  # its first component marks it as started
        self._registry.add(call)
        composition = self._compositions[call.id] = CompositionRun(call, self._machine(call), limited)
        machine, at_ms = composition.machine, now_ms()
        self._advance(
            composition,
            lambda: machine.begin(call.id, call.resolved, bytes(call.payload), cause=call.cause, now_ms=at_ms),
        )
        if call.durable:  # its component has the payload
            call.payload, call.reserved = b"", None

    def _advance(self, composition: CompositionRun, decide: Callable[[], list[Command]]) -> None:
        try:
            commands = decide()
        except Exception as failure:  # noqa: BLE001 - a composition must end whatever fails in it
            _log.exception("a composition failed", **composition.call.log_facts)
            commands = composition.machine.abort(f"{FAILED}{failure}")
        for command in commands:
            if isinstance(command, RunAction):
                self._run(composition, command)
            elif command.frame.id == composition.call.id:
                self._end(composition, command)
            else:
                self._store.record(composition_record(composition.call, command, now_ms()))

    def _run(self, composition: CompositionRun, command: RunAction) -> None:
        call = composition.call
        shared = None
        payload: bytes | memoryview = command.payload
        if command.handed is not None or command.hands_on:
            shared = SharedArguments(handed=command.handed is not None, hands_on=command.hands_on)
            if command.handed is not None:
                shared.buffer, payload = command.handed.shared_buffer, command.handed.pickled
        component = composition.component = composition.component_call(
            command, payload, shared, partial(self._returned, composition), partial(self._chain_ended, composition),
            self._ids,
        )  # fmt: skip
        try:
            self._reserve_payload(composition, component)
        except BudgetError as refusal:
            composition.component, reason = None, str(refusal)
            self._advance(composition, lambda: composition.machine.lost(reason, now_ms()))
            return
        if call.durable and not composition.begun:
            component.queue_entry = call.id
        if component.resolved.workflow:
            self.workflows.enqueue(component)
        else:
            self._service.enqueue(component)
            if self.ahead.is_on and (following := composition.machine.following()) is not None:
                self.ahead.expect_after(following.tenant, component.function, following.function, "sequence")

    def _reserve_payload(self, composition: CompositionRun, component: Call) -> None:
        """Count a component's payload in the namespace's memory until it has run. Raises `BudgetError`.

        The first component gets what its composition had.
        """
        payload, tenant, budget = component.payload, composition.call.namespace.name, self._payloads
        if len(payload) <= SMALL_PAYLOAD_BYTES:
            return
        if composition.begun and not budget.fits(tenant, len(payload)):
            raise BudgetError(budget.refusal(tenant, len(payload)))
        component.reserved = Reservation(budget, tenant, len(payload))
        if isinstance(payload, memoryview):
            release(payload)  # a result that is handed on is no longer one that waits for its delivery

    def _chain_ended(self, composition: CompositionRun, chain: Call) -> None:
        """Handle the end of a chain. Its steps have reported how they ended, unless none could begin."""
        chain.done = None
        if chain.parked or chain.outcome is None:
            self._returned(composition, chain)
        elif composition.component is chain:
            composition.component = None

    def _returned(self, composition: CompositionRun, component: Call) -> None:
        component.done = None  # breaks the reference cycle between the two
        if composition.call.id not in self._compositions:  # the composition ended before its chain could be stopped
            return
        if not isinstance(component, NestedCall):
            composition.component = None
        call, machine = composition.call, composition.machine
        outcome, activation = component.outcome, component.activation
        if component.parked:
            call.parked = True
            del self._compositions[call.id]
            self._registry.forget(call)
            return
        self._count(component)
        composition.begun = True
        call.run.begun_s = call.run.begun_s or component.run.begun_s or component.run.arrived_s
        if outcome is None or activation is None:
            self._advance(composition, lambda: machine.lost(component.reason, now_ms()))
            return
        duration_ms, memory_mb = activation.end - activation.start, component.action.limits.memory
        handed = PickledResult(outcome.pickled, outcome.shared_buffer) if outcome.pickled is not None else None
        timing = (duration_ms, memory_mb, component.run.wait_ms)
        ending = ComponentEnd(component.id, outcome.status, bytes(outcome.result), *timing, handed)
        self._advance(composition, lambda: machine.returned(ending, now_ms()))

    def _end(self, composition: CompositionRun, close: CloseFrame) -> None:
        call, frame = composition.call, close.frame
        del self._compositions[call.id]
        call.run.wait_ms = frame.wait_ms
        notes = {} if composition.limited is None else composition.limited.end()
        dropped = close.status is not Status.SUCCESS and call.objective is not None and call.objective.dropped
        call.outcome = Outcome(
            close.status, close.result, frame.duration_ms / 1000, tuple(frame.components), timed_out=dropped
        )
        self._registry.end(call, composition_record(call, close, now_ms(), notes))
