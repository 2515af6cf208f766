"""The scheduler: a state machine without a clock. `step(now, events)` returns the commands that follow.

All events of one moment are handled before anything is decided, so that two devices that become free together are both
seen to be free. Then the policies choose one dispatch after another until each of them waits.

An event that cannot have happened changes nothing. The other events of its step are handled, and then `EventError` is
raised. The next step returns the commands that those events caused.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

from aliquot.core.admission.admitter import Admitter
from aliquot.core.admission.interfaces import Admission
from aliquot.core.admission.plan import Plan
from aliquot.core.admission.promises import Promises
from aliquot.core.calls import Calls
from aliquot.core.commands import Command, Fail, Reject, WakeAt
from aliquot.core.deployment import Deployment
from aliquot.core.dispatcher import Dispatcher
from aliquot.core.domain import Domain
from aliquot.core.errors import EventError, describe
from aliquot.core.events import (
    DatasetRemoved,
    Event,
    FetchEnded,
    FilesPredicted,
    FunctionDeployed,
    FunctionRemoved,
    InvocationArrived,
    InvocationCancelled,
    MemoryLoaded,
    RunFinished,
    RunsTakenBack,
    SandboxAdopted,
    SandboxLost,
    SandboxStarted,
    SessionBegan,
    SessionEnded,
    TenantWeightSet,
    UtilisationMeasured,
    Woke,
)
from aliquot.core.flow import Flow
from aliquot.core.interfaces import (
    ENDS_KEEP_ALIVE,
    Batching,
    Eviction,
    KeepAlive,
    Packing,
    Prefetching,
    Queueing,
    Sharing,
)
from aliquot.core.learning import learn, learn_limit
from aliquot.core.lifecycle import BUSY, FINISH, QUEUED, SandboxState
from aliquot.core.membership import Membership
from aliquot.core.pool import Pool
from aliquot.core.prefetching.by_node import NodePrefetchers
from aliquot.core.provisioning.device_needs import DeviceNeeds
from aliquot.core.provisioning.foresight import Foresight
from aliquot.core.provisioning.policy import Provisioning
from aliquot.core.provisioning.provisioner import Provisioner
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.registry import Registry
from aliquot.core.slices import SliceAllocator
from aliquot.core.timers import Timers
from aliquot.core.waiting import enqueue


class Scheduler:
    """The state of all devices, flows, sandboxes and invocations, and the policies that decide about them."""

    def __init__(
        self,
        make_queueing: Callable[[str], Queueing],
        keepalive: KeepAlive,
        make_eviction: Callable[[], Eviction[Any]],
        sharing: Sharing,
        packing: Packing,
        prefetching: Prefetching,
        admission: Admission,
        batching: Batching,
        provisioning: Provisioning,
        pool_slots: int | None = None,
        policy_names: tuple[str, ...] = (),
        node_wait_s: float = 300,
    ) -> None:
        self.now: float = 0
        self.policy_names = policy_names  # one of each kind, for records and replays
        self._outbox: list[Command] = []
        self._timers = Timers()
        self.registry = Registry(make_queueing, make_eviction, packing, pool_slots)
        self.slices = SliceAllocator(sharing, self._outbox)
        self.pool = Pool(keepalive, pool_slots, self._timers, self._outbox, self.slices)
        self.provisioner = Provisioner(self.pool)
        plan, promises = Plan(self.registry, self.pool), Promises(self._outbox)
        self._calls = Calls(self.pool, plan, promises, self._outbox)
        self.invocations = self._calls.open  # those that have not ended
        self.prefetcher = NodePrefetchers(prefetching, self._outbox)
        self._batching = batching
        parts = self.registry, self.pool, self.slices, self.prefetcher
        self._dispatcher = Dispatcher(*parts, batching, plan, self._outbox)
        self._membership = Membership(self.registry, self.pool, self._calls, self._timers, self.prefetcher, node_wait_s)
        ahead = self.registry, self.pool, self.slices, plan, self._timers, self._outbox
        self.foresight = Foresight(provisioning, self.provisioner, *ahead)
        self._expected = self.foresight.expected
        self.admitter = Admitter(admission, plan, promises, self.pool, self._calls, self._dispatcher, self._outbox)
        self._device_needs = DeviceNeeds(plan, self.registry, self.foresight.capacity)
        self._plans = plan.devices
        self._arrivals = 0
        self._alone = False  # whether the current event is the only one of its step
        self._domains: list[Domain] = []  # those of the registry, as a list for the loops of every step
        self._deployment = Deployment(
            self.registry,
            self.pool,
            self._calls,
            self.provisioner,
            self.prefetcher,
            batching,
            self.admitter,
            self._domains,
        )
        self._handlers = self._make_handlers()

    def _make_handlers(self) -> dict[type[Event], Callable[..., None]]:
        return {
            **{kind: partial(self._membership_changed, handle) for kind, handle in self._membership.handlers().items()},
            **self.admitter.handlers(),
            **self.foresight.handlers(),
            UtilisationMeasured: lambda event: self.registry.measured(event.device, event.utilisation),
            TenantWeightSet: lambda event: self.registry.set_weight(event.tenant, event.weight),
            FunctionDeployed: self._deployment.deployed,
            FunctionRemoved: self._deployment.removed,
            InvocationArrived: self._invocation_arrived,
            InvocationCancelled: self._invocation_cancelled,
            SandboxStarted: self._sandbox_ready,
            MemoryLoaded: self._sandbox_ready,
            SandboxLost: self._sandbox_lost,
            SandboxAdopted: self._sandbox_adopted,
            RunFinished: self._run_finished,
            RunsTakenBack: self._runs_taken_back,
            SessionBegan: lambda event: self.prefetcher.session_began(event, self.registry.any_node, now=self.now),
            SessionEnded: self._session_ended,
            FilesPredicted: lambda event: self.prefetcher.files_predicted(event, now=self.now),
            FetchEnded: lambda event: self.prefetcher.fetch_ended(event, now=self.now),
            DatasetRemoved: self._dataset_removed,
            Woke: lambda _: self._timers.woke(),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return the state and the policies for a snapshot, without the table of handlers."""
        return {name: value for name, value in self.__dict__.items() if name != "_handlers"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._handlers = self._make_handlers()

    # --- the entry point --------------------------------------------------------------------------------

    def step(self, now: float, events: Sequence[Event]) -> list[Command]:
        """Handle the events of time `now`, and return the commands that follow."""
        if now < self.now:
            raise EventError(f"the clock went back from {self.now} to {now}")
        self.now = now
        for domain in self._domains:
            domain.view.now = now
        self.admitter.plan.now = now
        handlers, wrong = self._handlers, []
        self._alone = len(events) == 1
        for event in events:
            try:
                handlers[type(event)](event)
            except EventError as error:
                wrong.append(describe(error, event, events))
        self._device_needs.look(now)
        if self._plans or self.admitter.waiting:
            self.admitter.step(now)
            self._dispatcher.decide(self._domains, now=now)
            self.admitter.step_again(now)
        else:
            self._dispatcher.decide(self._domains, now=now)
        if self.pool.short_flows or self._expected.next_at <= now:
            self.provisioner.hold_next(now=now)
            self._expected.start_due()
        if self.prefetcher.needs_decision:
            self.prefetcher.decide(now=now)
        heap = self._timers.heap
        if heap and heap[0][0] <= now:
            self._expire()
        self._request_wake(now)
        if wrong:
            raise EventError("; ".join(wrong))
        commands = self._outbox.copy()
        self._outbox.clear()
        return commands

    def _request_wake(self, now: float) -> None:
        """Request a wake-up for the next timer or a policy, unless the shell knows of one that comes as early."""
        timers, earliest = self._timers, self._expected.next_at
        for domain in self._domains:
            wake = domain.policy.wake_at()
            if wake is not None and now < wake < earliest:
                earliest = wake
        if self._plans or self.admitter.waiting:
            earliest = min(earliest, self.admitter.wake_at(now))
        heap, announced = timers.heap, timers.announced
        if earliest < announced or announced <= now or (heap and heap[0][0] < announced):
            wake = timers.next_wake(now, earliest)
            if wake is not None:
                self._outbox.append(WakeAt(wake))

    # --- invocations ------------------------------------------------------------------------------------

    def _invocation_arrived(self, event: InvocationArrived) -> None:
        if event.invocation in self.invocations:
            raise EventError(f"arrived twice: {self.invocations[event.invocation].describe()}")
        flow = self.registry.flows.get((event.tenant, event.function))
        if flow is None:  # it was removed after the call was accepted
            self._outbox.append(Reject(event.invocation, f"tenant {event.tenant} has no function {event.function}"))
            return
        flow.record_arrival(self.now)
        if flow.misfit is not None and flow.node_wait is None:
            self._outbox.append(Reject(event.invocation, flow.misfit))
            return
        executions = self.admitter.executions
        planned = None if event.execution is None else executions.stage_arrived(event, self._arrivals, self.now)
        invocation = planned or Invocation(event.invocation, self._arrivals, flow, self.now)
        self._arrivals += 1
        decided = self._decided(invocation, event)
        if decided and invocation.id not in self.invocations:
            return  # it was refused
        flow.expiry = None
        if self.pool.observes_calls:
            self.pool.keepalive.flow_called(flow, now=self.now)
        if not decided:
            self.invocations[invocation.id] = invocation
            if self._alone and self._dispatcher.dispatch_alone(invocation, self._domains, now=self.now):
                return
            enqueue(flow, invocation)
        if flow.spec.datasets:
            self._prefetch_for(flow, invocation, event)

    def _decided(self, invocation: Invocation, event: InvocationArrived) -> bool:
        """Ask the admission policy about a call with an objective. Return False if it goes on as a plain call."""
        if event.session is not None:
            invocation.session = self.pool.session_sandboxes.session(event.tenant, event.session)
        invocation.own_sandbox = event.own_sandbox
        executions = self.admitter.executions
        if event.execution is not None and (invocation.id in self.invocations or executions.refuses(event)):
            return True  # it has its place in the plan, or its execution ends
        has_objective = event.deadline_s is not None or event.cost_limit is not None
        return has_objective and self.admitter.arrived(invocation, event, now=self.now)

    def _prefetch_for(self, flow: Flow, invocation: Invocation, event: InvocationArrived) -> None:
        node = partial(self.registry.data_node, flow, invocation.session)
        self.prefetcher.function_called(event.tenant, event.function, event.session, node, now=self.now)

    def _invocation_cancelled(self, event: InvocationCancelled) -> None:
        invocation = self.invocations.get(event.invocation)
        if invocation is None:
            return  # it ended before the cancellation arrived
        if invocation.state is QUEUED:
            self._calls.withdraw(invocation, now=self.now)
            self._outbox.append(Fail(invocation.id, event.reason))
            self._calls.settle(invocation.flow, now=self.now)
        elif invocation.sandbox is not None:
            self._calls.cancel(invocation, invocation.sandbox, event.reason, now=self.now)

    def _run_finished(self, event: RunFinished) -> None:
        sandbox = self.pool.sandboxes.get(event.sandbox) or self._sandbox(event.sandbox)
        if sandbox is None:
            return
        invocation, batch = sandbox.invocation, sandbox.batch
        if invocation is None or sandbox.run_name != event.invocation or sandbox.state is not BUSY:
            raise EventError(f"{event.invocation} cannot have finished in {sandbox.describe()}")
        if not 0 <= event.run_s < inf:
            raise EventError(f"a run time of {event.run_s} s is impossible: {invocation.describe()}")
        flow = invocation.flow
        invocation.run_s = event.run_s
        if sandbox.retired is None:  # run times of an older version do not count
            learn(event, sandbox, self._batching, now=self.now)
            if self._plans:
                self.admitter.run_finished(sandbox, event.run_s)
        now, pool, calls = self.now, self.pool, self._calls
        if sandbox.ahead:
            calls.begin_next(sandbox, now=now)
        else:
            sandbox.change(FINISH)
            if sandbox.slice is not None:
                self.slices.end_run(sandbox)
            pool.release(sandbox, now=now)
            if invocation.session is not None and sandbox.idle:
                pool.keep(sandbox, invocation.session, now=now)
        if batch is None:
            calls.complete(invocation, now=now)
        else:
            sandbox.batch = None
            calls.end_batch(batch, event.again, now=now)
        calls.settle(flow, now=now)

    def _runs_taken_back(self, event: RunsTakenBack) -> None:
        if (sandbox := self._sandbox(event.sandbox)) is not None:
            self._calls.take_back(sandbox, event.invocations, now=self.now)

    def _dataset_removed(self, event: DatasetRemoved) -> None:
        self.registry.index.datasets.forget(event.dataset)
        self.prefetcher.dataset_removed(event)

    def _membership_changed(self, handle: Callable[[Event], None], event: Event) -> None:
        self._membership.now = self.now
        handle(event)
        self.admitter.devices_changed(self.now)

    def _session_ended(self, event: SessionEnded) -> None:
        self.pool.end_session(event.tenant, event.session, now=self.now)
        self.prefetcher.session_ended(event.tenant, event.session)

    # --- sandboxes --------------------------------------------------------------------------------------

    def _sandbox_ready(self, event: SandboxStarted | MemoryLoaded) -> None:
        if (sandbox := self._sandbox(event.sandbox)) is None:
            return
        expected = SandboxState.STARTING if isinstance(event, SandboxStarted) else SandboxState.LOADING
        if sandbox.state is not expected:
            raise EventError(f"it was not {expected}: {sandbox.describe()}")
        self.provisioner.ready(sandbox, now=self.now)
        self.pool.ready(sandbox, now=self.now)
        self.foresight.moves.ready(sandbox)
        if sandbox.invocation is not None:
            self._dispatcher.run(sandbox, sandbox.invocation, now=self.now)
        self.admitter.sandbox_ready(sandbox, cold=expected is SandboxState.STARTING, now=self.now)

    def _sandbox_adopted(self, event: SandboxAdopted) -> None:
        """Take over a sandbox that another scheduler has started, and the invocation that runs in it."""
        flow = self.registry.flow(event.tenant, event.function)
        sessions = self.pool.session_sandboxes
        session = None if event.session is None else sessions.session(event.tenant, event.session)
        if event.invocation is not None and event.invocation in self.invocations:
            raise EventError(f"it is here already: {self.invocations[event.invocation].describe()}")
        devices = tuple(self.registry.device(name) for name in event.place)
        sandbox = self.pool.adopt(event.sandbox, flow, devices, runs=event.invocation is not None, now=self.now)
        if event.invocation is not None:
            invocation = Invocation(event.invocation, self._arrivals, flow, self.now)
            self._arrivals += 1
            invocation.session = session
            self.invocations[invocation.id] = invocation
            self._dispatcher.adopt(invocation, sandbox, now=self.now)
        elif session is not None:
            self.pool.keep(sandbox, session, now=self.now)

    def _sandbox_lost(self, event: SandboxLost) -> None:
        if (sandbox := self._sandbox(event.sandbox)) is not None:
            self.provisioner.lost(sandbox)
            if event.out_of_memory:
                learn_limit(sandbox)
            self._calls.lose(sandbox, event.reason, event.again, now=self.now)

    def _expire(self) -> None:
        for subject in self._timers.due(self.now):
            expiry = subject.expiry
            if expiry is None:
                continue
            if isinstance(subject, Sandbox):
                self.provisioner.expire_sandbox(subject, expiry)
                continue
            if not isinstance(subject, Flow):
                self._membership.now = self.now
                self._membership.expire(subject)
                self._dispatcher.decide(self._domains, now=self.now)  # calls may have returned to their queues
                continue
            self.provisioner.expire_flow(subject, expiry, now=self.now)
            if expiry.action in ENDS_KEEP_ALIVE and not (expiry.sandboxes or subject.spec.warm):
                subject.domain.policy.expired(subject, subject.domain.view)

    def _sandbox(self, number: int) -> Sandbox | None:
        """Return the sandbox, or None if it is gone and the event about it is late."""
        if not 0 < number <= self.pool.started:
            raise EventError(f"there never was a sandbox {number}")
        return self.pool.sandboxes.get(number)
