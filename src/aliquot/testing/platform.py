"""A fake platform that runs nothing, for tests of the gateway and other callers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from aliquot.assemble import assemble
from aliquot.budgets import Budget
from aliquot.config import PolicySettings
from aliquot.core.commands import Start
from aliquot.core.events import Event
from aliquot.core.model import CPU
from aliquot.core.units import GIB
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.activations import ActivationRecorder
from aliquot.live.invocations.ahead_of_demand import AheadOfDemand
from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.call_registry import CallRegistry
from aliquot.live.invocations.capacity import Capacity
from aliquot.live.invocations.errors import OverloadedError
from aliquot.live.invocations.flows import Flows
from aliquot.live.invocations.limited_executions import LimitedExecutions
from aliquot.live.invocations.sessions.live_sessions import LiveSessions
from aliquot.live.invocations.workflows.options import WorkflowSettings
from aliquot.live.invocations.workflows.workflows import Workflows
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.base import Store
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import Action, Activation, FullName, Namespace

START_MS = 4_000_000_000_000  # far in the future, so that activations are newer than any namespace


async def _decide_nothing() -> None:
    """Take no step, since there is no scheduler."""


class FakePlatform:
    """Answers each call with its payload, or with the result of `answer`. With `hold`, the test calls `finish`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.answer: Callable[[Call], Outcome] = lambda call: Outcome(Status.SUCCESS, call.payload, 0.001)
        self.hold = False
        self.complaint: str | None = None  # if set, calls are refused with this text
        self.why_misfit: str | None = None  # if set, the reason why no action fits
        self.calls: list[Call] = []  # all submitted calls
        self.detached: list[str] = []
        self.cancelled: list[str] = []
        self.deployed: dict[tuple[str, str], Action] = {}
        self.weights: dict[str, float] = {}
        self.sessions = LiveSessions()
        self.capacity = Capacity(Flows(), tuple, 0)
        self.events: list[Event] = []  # about calls that are known to come
        self.ahead = AheadOfDemand(assemble(PolicySettings("fcfs")), Flows(), self.events.append, time.monotonic)
        self.ended_sessions: list[tuple[str, str]] = []
        self._recorder = ActivationRecorder("fake")
        self.workflows = Workflows(
            CallRegistry(store, time.monotonic), store, _resolve_nothing, run_call=self.submit,
            cancel_call=self.cancel, count=lambda _: None, payloads=Budget("payloads", "bytes", GIB),
            settings=WorkflowSettings(),
            limited=LimitedExecutions(lambda _: None, _decide_nothing, time.monotonic, lambda _, name: name),
        )  # fmt: skip

    # --- Platform -----------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        self._take(call)
        if not self.hold:
            asyncio.get_running_loop().call_soon(self.finish, call)

    async def accept(self, call: Call) -> None:
        self._take(call)
        await self._enqueue(call)
        if not self.hold:
            asyncio.get_running_loop().call_soon(self.finish, call)

    async def accept_all(self, calls: Sequence[Call], record: Activation, event: bytes = b"") -> None:
        for call in calls:
            self._take(call)
        await self.store.accept_all([call.accepted(START_MS) for call in calls], record, event)
        for call in calls if not self.hold else ():
            asyncio.get_running_loop().call_soon(self.finish, call)

    async def detach(self, call: Call) -> None:
        if self.complaint is not None:
            raise OverloadedError(self.complaint)
        await self._enqueue(call)
        self.detached.append(call.id)

    def cancel(self, owner: str, activation_id: str) -> bool:
        is_known = any(call.id == activation_id and call.namespace.owner == owner for call in self.calls)
        if is_known:
            self.cancelled.append(activation_id)
        return is_known

    def follow(self, owner: str, activation_id: str, follower: Follower) -> bool:
        for call in self.calls:
            if call.id == activation_id and call.namespace.owner == owner and call.activation is None:
                call.follow(follower)
                return True
        return False

    def is_open(self, owner: str, activation_id: str) -> bool:
        return any(call.id == activation_id and call.namespace.owner == owner for call in self.calls)

    async def activation(self, owner: str, activation_id: str) -> Activation | None:
        return await self.store.activation(owner, activation_id)

    def deploy(self, resolved: ResolvedAction) -> None:
        self.deployed[resolved.tenant, resolved.function] = resolved.action

    def prepare(self, resolved: ResolvedAction) -> None:
        """Do nothing, because there are no processes to start ahead."""

    def remove(self, tenant: str, function: str) -> None:
        self.deployed.pop((tenant, function), None)

    def reason_not_deployable(self, action: Action) -> str | None:
        return self.why_misfit

    def begin_session(self, namespace: str, session_id: str) -> None:
        """Do nothing, because there are no files to prefetch."""

    def end_session(self, namespace: str, session_id: str) -> None:
        self.ended_sessions.append((namespace, session_id))

    def set_weight(self, namespace: Namespace) -> None:
        self.weights[namespace.name] = namespace.weight

    def status(self, *, with_processes: bool = True) -> dict[str, Any]:
        device = {"name": "cpu", "kind": "cpu", "slots": 2, "running": 1, "shares_used": 0.5, "memory_bytes": None}
        device |= {"resident_bytes": 0, "sandboxes": 1}
        sandbox = {"sandbox": 1, "tenant": "guest", "function": "echo", "device": "cpu", "state": "idle", "uses": 3}
        return {"devices": [device], "flows": [], "sandboxes": [sandbox], "calls": len(self.calls)}

    # --- for the test -------------------------------------------------------------------------------------

    def finish(self, call: Call) -> None:
        """End a call with the outcome of `answer`."""
        outcome = self.answer(call)
        call.run.start = Start.COLD if len(self.calls) == 1 else Start.WARM
        call.run.init_s = 0.02 if call.run.start is Start.COLD else None
        call.outcome = outcome
        call.run.place = (CPU,)
        call.activation = self._recorder.record(call, outcome, start_ms=START_MS + len(self.calls), duration_ms=1)
        self.store.record(call.activation)
        self.sessions.finish(call.namespace.name, call.session, now_s=time.monotonic(), now_ms=START_MS)
        if call.done is not None:
            call.done(call)

    def _take(self, call: Call) -> None:
        if self.complaint is not None:
            raise OverloadedError(self.complaint)
        self.calls.append(call)
        self.sessions.begin(call.namespace.name, call.session, now_s=time.monotonic(), now_ms=START_MS)

    async def _enqueue(self, call: Call) -> None:
        await self.store.accept(call.accepted(START_MS))


def _resolve_nothing(_: str, name: FullName) -> ResolvedAction:
    raise NotFoundError(f"action {name}")
