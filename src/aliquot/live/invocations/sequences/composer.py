"""The platform as the gateway sees it: single calls go on to the service, others are performed one run after another.

The core sees components only. A composition that is accepted is in the store's queue as a whole: its first component's
run marks it as begun, and its record ends it. Components are recorded behind and are in the file by then.
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import composition_record, note
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.errors import OverloadedError
from aliquot.live.invocations.ledger import now_ms
from aliquot.live.invocations.sequences.frames import Ending, Handed
from aliquot.live.invocations.sequences.machine import MOST, Close, Command, Machine, Run
from aliquot.live.invocations.sequences.payloads import error
from aliquot.live.invocations.service import Service
from aliquot.live.invocations.sessions.live_sessions import LiveSessions
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.base import Store
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import SEQUENCE, Action, Activation, FullName, Namespace

FAILED = "the composition failed: "
_CAUSED_BY = note("causedBy", SEQUENCE)

_log = structlog.get_logger("aliquot.composer")
ResolveFor = Callable[[str, FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`


class Performance:
    """One composition under way: its call, the machine that says what comes next, and the component that runs."""

    __slots__ = ("begun", "call", "component", "machine")

    def __init__(self, call: Call, machine: Machine) -> None:
        self.call = call
        self.machine = machine
        self.component: Call | None = None
        self.begun = False  # a component has run

    def printed(self, line: str) -> None:
        """Who follows the composition hears its components."""
        self.call.printed(line)

    def ended(self, call: Call) -> None:
        """That is told by `done`."""


class Composer:
    """Implements `Platform`."""

    def __init__(self, service: Service, store: Store, resolve: ResolveFor, *, most: int = MOST) -> None:
        self._service = service
        self._ledger = service.ledger
        self._store = store
        self._resolve = resolve
        self._most = most
        self._ids = Ids()
        self._performances: dict[str, Performance] = {}  # by the id of the call
        self.count: Callable[[Call], None] = lambda _: None  # told of every component that has ended
        service.within.count = self._called

    def _called(self, component: Call) -> None:
        self.count(component)

    # --- what the gateway asks --------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if call.resolved.composite:
            self._ledger.check_open()
            self._begin(call)
        else:
            self._service.submit(call)

    async def accept(self, call: Call) -> None:
        if not call.resolved.composite:
            await self._service.accept(call)
            return
        self._ledger.check_open()
        await self._ledger.keep(call)
        self._begin(call)

    async def accept_all(self, calls: Sequence[Call], record: Activation) -> None:
        await self._ledger.keep_all(calls, record)
        for call in calls:
            self.enqueue(call)

    async def detach(self, call: Call) -> None:
        if not call.resolved.composite:
            await self._service.detach(call)
            return
        performance = self._performances.get(call.id)
        if performance is None or call.durable:
            return
        component = performance.component
        if component is not None and not performance.begun:
            component.begins = call.id  # before it is kept: it may begin meanwhile
            call.begun_s = component.begun_s
        try:
            await self._ledger.keep(call)
        except OverloadedError:
            if component is not None:
                component.begins = ""
            raise

    def cancel(self, namespace: str, activation_id: str) -> bool:
        performance = self._performances.get(activation_id) or self._around(activation_id)
        if performance is None or performance.component is None:
            return self._service.cancel(namespace, activation_id)
        if performance.call.namespace.name != namespace:
            return False
        performance.machine.cancel(activation_id)
        self._service.cancel(namespace, performance.component.id)
        return True

    def _around(self, activation_id: str) -> Performance | None:
        """The one with a composition of this id within it."""
        if activation_id in self._service.calls:
            return None
        around = (one for one in self._performances.values() if one.machine.has(activation_id))
        return next(around, None)

    def follow(self, namespace: str, activation_id: str, follower: Follower) -> bool:
        performance = self._performances.get(activation_id)
        if performance is None:
            return self._service.follow(namespace, activation_id, follower)
        if performance.call.namespace.name != namespace:
            return False
        performance.call.follow(follower)
        return True

    @property
    def sessions(self) -> LiveSessions:
        return self._service.sessions

    def begin_session(self, namespace: str, session_id: str) -> None:
        self._service.begin_session(namespace, session_id)

    def end_session(self, namespace: str, session_id: str) -> None:
        self._service.end_session(namespace, session_id)

    async def activation(self, namespace: str, activation_id: str) -> Activation | None:
        return await self._service.activation(namespace, activation_id)

    def deploy(self, resolved: ResolvedAction) -> None:
        self._service.deploy(resolved)

    def remove(self, tenant: str, function: str) -> None:
        self._service.remove(tenant, function)

    def misfit(self, action: Action) -> str | None:
        return self._service.misfit(action)

    def set_weight(self, namespace: Namespace) -> None:
        self._service.set_weight(namespace)

    def status(self) -> dict[str, Any]:
        return self._service.status()

    # --- what an earlier server left --------------------------------------------------------------------

    def enqueue(self, call: Call) -> None:
        """One that is in the store's queue: let it run."""
        if call.resolved.composite:
            self._begin(call)
        else:
            self._service.enqueue(call)

    async def end_unbegun(self, call: Call, reason: str) -> None:
        """One that is in the store's queue and cannot run."""
        if not call.resolved.composite:
            await self._ledger.end_durably(call, self._service.ends.unbegun(call, reason))
            return
        machine = self._machine(call)
        at_ms = now_ms()
        frame = machine.open(call.id, call.resolved, call.cause, at_ms)
        close = Close(frame, Status.INTERNAL_ERROR, error(reason))
        await self._ledger.end_durably(call, composition_record(call, close, at_ms))

    # --- performing -------------------------------------------------------------------------------------

    def _machine(self, call: Call) -> Machine:
        resolve, caller = self._resolve, call.namespace.name
        return Machine(lambda name: resolve(caller, name), self._ids, most=self._most)

    def _begin(self, call: Call) -> None:
        call.begins = ""  # its first component begins it
        self._ledger.hold(call)
        performance = self._performances[call.id] = Performance(call, self._machine(call))
        machine, at_ms = performance.machine, now_ms()
        self._go_on(
            performance,
            lambda: machine.begin(call.id, call.resolved, bytes(call.payload), cause=call.cause, now_ms=at_ms),
        )

    def _go_on(self, performance: Performance, decide: Callable[[], list[Command]]) -> None:
        try:
            commands = decide()
        except Exception as failure:  # noqa: BLE001 - whatever is wrong with one composition, it must end
            _log.exception("a composition failed", activation=performance.call.id)
            commands = performance.machine.abort(f"{FAILED}{failure}")
        for command in commands:
            if isinstance(command, Run):
                self._run(performance, command)
            elif command.frame.id == performance.call.id:
                self._end(performance, command)
            else:
                self._store.record(composition_record(performance.call, command, now_ms()))

    def _run(self, performance: Performance, command: Run) -> None:
        call = performance.call
        component = self._component(performance, command, command.id, command.resolved)
        if command.then:
            steps = [self._component(performance, command, *step) for step in command.then]
            carrier = Call(self._ids(), call.namespace, command.resolved, command.payload, session=call.session)
            carrier.done = lambda carrier: self._carried(performance, carrier)
            carrier.chain = [component, *steps]
            component = carrier
        component.hands_on = command.hands_on
        if command.handed is not None:
            component.handed, component.parcel = True, command.handed.parcel
            component.payload = command.handed.pickled
        performance.component = component
        if call.durable and not performance.begun:
            component.begins = call.id
        self._service.enqueue(component)

    def _component(self, performance: Performance, command: Run, component_id: str, resolved: ResolvedAction) -> Call:
        call = performance.call
        component = Call(
            component_id,
            call.namespace,
            resolved,
            command.payload,
            transaction=call.transaction,
            cause=command.cause,
            notes=_CAUSED_BY,
            session=call.session,
            done=lambda component: self._returned(performance, component),
        )
        component.followers = (performance,)
        return component

    def _carried(self, performance: Performance, carrier: Call) -> None:
        """What carried a chain is done with. Its steps have told how they ended, unless none could begin."""
        carrier.done = None
        if carrier.parked or carrier.outcome is None:
            self._returned(performance, carrier)
        elif performance.component is carrier:
            performance.component = None

    def _returned(self, performance: Performance, component: Call) -> None:
        component.done = None  # the two would hold each other until the collector comes
        if performance.call.id not in self._performances:  # it was ended before its chain could be stopped
            return
        if component.carrier is None:
            performance.component = None
        call, machine = performance.call, performance.machine
        outcome, activation = component.outcome, component.activation
        if component.parked:
            call.parked = True
            del self._performances[call.id]
            self._ledger.forget(call)
            return
        self.count(component)
        performance.begun = True
        call.begun_s = call.begun_s or component.begun_s or component.arrived_s
        if outcome is None or activation is None:
            self._go_on(performance, lambda: machine.lost(component.reason, now_ms()))
            return
        duration_ms, memory_mb = activation.end - activation.start, component.action.limits.memory
        handed = Handed(outcome.pickled, outcome.parcel) if outcome.pickled is not None else None
        figures = (duration_ms, memory_mb, component.wait_ms)
        ending = Ending(component.id, outcome.status, bytes(outcome.result), *figures, handed)
        self._go_on(performance, lambda: machine.returned(ending, now_ms()))

    def _end(self, performance: Performance, close: Close) -> None:
        call, frame = performance.call, close.frame
        del self._performances[call.id]
        call.wait_ms = frame.wait_ms
        call.outcome = Outcome(close.status, close.result, frame.duration_ms / 1000, tuple(frame.components))
        self._ledger.end(call, composition_record(call, close, now_ms()))
