"""Let the queueing policies choose one dispatch after another, check each choice, and carry it out."""

from collections.abc import Sequence

from aliquot.core.admission.plan import Plan
from aliquot.core.batches import Batch, count_together
from aliquot.core.commands import Command, Dispatch, Purpose, Run, RunNext, Start
from aliquot.core.device import Device
from aliquot.core.device_index import MAX_CANDIDATES
from aliquot.core.domain import Domain
from aliquot.core.errors import PolicyError
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Advice, Batching, Choice, SwapIn
from aliquot.core.lifecycle import DISPATCH, HOST_WARM, RUN, RUN_SANDBOX, WARM, SandboxState
from aliquot.core.pool import Pool
from aliquot.core.prefetching.by_node import NodePrefetchers
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.registry import Registry
from aliquot.core.slices import SliceAllocator
from aliquot.core.tenant_slots import TenantSlots
from aliquot.core.waiting import append, hold_back, take_head, unqueue

# The kind of start in an idle sandbox. One that is still starting or loading counts as the start it is in.
_START = {
    SandboxState.WARM: Start.WARM,
    SandboxState.HOST_WARM: Start.SWAP_IN,
    SandboxState.LOADING: Start.SWAP_IN,
    SandboxState.STARTING: Start.COLD,
}


BEYOND_LIMIT = "beyond the limit, because its tenant has few calls in flight"


class Dispatcher:
    """Turns the decisions of the queueing policies into assigned sandboxes and commands."""

    def __init__(
        self,
        registry: Registry,
        pool: Pool,
        slices: SliceAllocator,
        prefetcher: NodePrefetchers,
        batching: Batching,
        plan: Plan,
        outbox: list[Command],
    ) -> None:
        self._plan = plan
        self._prefetcher = prefetcher
        self._batching = batching
        self._registry = registry
        self._tenant_slots = registry.tenant_slots
        self._pool = pool
        self._slices = slices
        self._outbox = outbox
        self._dispatches = self._turn = 0

    def decide(self, domains: Sequence[Domain], *, now: float) -> None:
        """Ask the domains in turn for one dispatch each, until all wait, so they alternate on devices they share.

        The turn continues where the last step left it, because often only one slot becomes free at a time.
        """
        if len(domains) == 1:
            domain = domains[0]
            while (domain.queued or domain.policy.advice) and self._dispatch_next(domain, now):
                pass
        elif domains:
            self._alternate(domains, now)
        if self._tenant_slots.queued:
            while self._dispatch_beyond_limit(self._tenant_slots, now):
                pass

    def _alternate(self, domains: Sequence[Domain], now: float) -> None:
        count, refused = len(domains), 0
        while refused < count:
            self._turn %= count
            refused = 0 if self._dispatch_next(domains[self._turn], now) else refused + 1
            self._turn += 1

    def dispatch_alone(self, invocation: Invocation, domains: Sequence[Domain], *, now: float) -> bool:
        """Dispatch an invocation that is the only event of its step without queueing it, if nothing else waits.

        The commands are those of the long way. Return False if it must be queued, because its flow needs more than an
        idle sandbox, or because its policy wants to see it in its queue.
        """
        flow = invocation.flow
        spec = flow.spec
        if self._plan.devices or flow.kept or flow.misfit is not None or spec.instances is not None or spec.datasets:
            return False
        if flow.ahead is not None and flow.ahead.place_for(invocation) is not None:
            return False
        for domain in domains:
            if domain.queued or domain.policy.advice:
                return False
        domain = flow.domain
        choice = domain.policy.choose_alone(flow, domain.view)
        if choice is None:
            return False
        domain.view.freed.clear()
        if len(domains) > 1:
            self._turn = domains.index(domain) + 1  # as if it had had its turn
        sandbox = None if choice.sandbox is None else self._pool.sandboxes.get(choice.sandbox.id)
        if sandbox is None or sandbox.flow is not flow or sandbox.invocation is not None:
            raise PolicyError(
                f"{type(domain.policy).__name__} chose {flow.key} ({choice.reason}), but not an idle sandbox of it"
            )
        flow.in_flight += 1
        self._assign(domain, invocation, sandbox, _START[sandbox.state], choice.reason, now)
        return True

    def _dispatch_beyond_limit(self, tenant_slots: TenantSlots, now: float) -> bool:
        """Give a tenant with few calls in flight a slot beyond a device's limit, and return False if none can have one.

        The queueing policies have had their turn and wait.
        """
        for invocation in tenant_slots.candidates():
            flow = invocation.flow
            found = _place_beyond_limit(flow)
            if found is not None:
                device, sandbox = found
                choice = Choice(flow, device, sandbox, BEYOND_LIMIT)
                if not self._hand_ahead(flow.domain, choice, flow, now):
                    self._commit(flow.domain, choice, flow, (device,), sandbox, now)
                return True
        return False

    def _dispatch_next(self, domain: Domain, now: float) -> bool:
        """Make one dispatch of this domain, and return False if its policy waits."""
        policy, view = domain.policy, domain.view
        if policy.advice:
            advice, policy.advice = policy.advice, []
            self._move_memory(advice, now)
        if not domain.queued or not domain.has_slot():
            return False
        choice = policy.choose(view)
        view.freed.clear()
        if choice is None:
            return False
        flow = self._registry.flows[choice.flow.key]
        if flow.ahead is None or not self._hand_ahead(domain, choice, flow, now):
            self._commit(domain, choice, flow, *_resolve(choice, flow, domain, self._registry, self._pool), now)
        elif flow.queued:
            self._hand_more_ahead(domain, choice, flow, now)
        return True

    def _move_memory(self, advice: Sequence[Advice], now: float) -> None:
        for each in advice:
            flow = self._registry.flows[each.flow.key]
            if isinstance(each, SwapIn):
                self._pool.swap_in(flow, now=now)
            else:
                self._pool.swap_out(flow, now=now)

    def _commit(
        self,
        domain: Domain,
        choice: Choice,
        flow: Flow,
        devices: tuple[Device, ...],
        sandbox: Sandbox | None,
        now: float,
    ) -> None:
        size = 1 if flow.batches is None else self._batch_size(flow, devices[0], now)
        invocation = take_head(flow)
        flow.in_flight += 1
        reason = choice.reason
        if sandbox is None:
            started = self._pool.start(invocation, devices, reason, Purpose.CALL, now=now)
            self._assign(domain, invocation, started, Start.COLD, reason, now, size)
        else:
            self._assign(domain, invocation, sandbox, _START[sandbox.state], reason, now, size)
        if flow.batches is not None:
            hold_back(flow)  # those that would have fitted into the batch

    def run_block(self, members: Sequence[Invocation], sandbox: Sandbox, reason: str, *, now: float) -> None:
        """Dispatch promised invocations together into a sandbox that is warm.

        Their policy sees an arrival and a dispatch of each, so that it counts and charges them like any other.
        """
        leader, *riders = members
        flow = leader.flow
        for member in members:
            append(flow, member)
            unqueue(flow, member)
        flow.in_flight += 1
        self._assign(flow.domain, leader, sandbox, Start.WARM, reason, now, riders=riders)

    def _batch_size(self, flow: Flow, device: Device, now: float) -> int:
        """Return how many of the flow's first invocations run together on the device."""
        if flow.batches is None:
            return 1
        wanted = self._batching.size(flow, flow.batches, device, now=now)
        return count_together(flow, min(wanted, flow.batches.limit))

    def _assign(
        self,
        domain: Domain,
        invocation: Invocation,
        sandbox: Sandbox,
        start: Start,
        reason: str,
        now: float,
        size: int = 1,
        riders: Sequence[Invocation] = (),
    ) -> None:
        """Assign an invocation that has left its queue to the sandbox, and run it if the sandbox is ready.

        With riders it leads a batch. With a size above 1 the first invocations in the queue ride along, too.
        """
        self._pool.assign(sandbox, invocation)
        if sandbox.state is HOST_WARM or invocation.flow.spec.run_bytes:
            self._pool.bring_memory(sandbox, invocation, now=now)
        invocation.sandbox = sandbox
        invocation.dispatched = now
        invocation.change(DISPATCH, now)
        invocation.take_slots(self._dispatches)
        self._dispatches += 1
        flow = invocation.flow
        if size > 1 or riders:
            sandbox.batch = Batch(invocation, size + len(riders))
        self._outbox.append(Dispatch(invocation.id, sandbox.id, sandbox.place, start, reason))
        domain.policy.dispatched(flow, invocation, sandbox.device, domain.view)
        if flow.spec.datasets:
            self._prefetcher.call_dispatched(invocation)
        if flow.ahead is not None and not invocation.own_sandbox:
            flow.ahead.sandbox = sandbox
        if not sandbox.planned and self._plan.devices:
            self._plan.occupy(sandbox, now)
        if sandbox.batch is not None:
            for rider in riders:
                self._add_rider(domain, rider, sandbox, sandbox.batch, start, reason, now)
            for _ in range(size - 1):
                self._add_rider(domain, take_head(flow), sandbox, sandbox.batch, start, reason, now)
        if sandbox.state is WARM:
            self.run(sandbox, invocation, now=now)

    def _add_rider(
        self,
        domain: Domain,
        rider: Invocation,
        sandbox: Sandbox,
        batch: Batch,
        start: Start,
        reason: str,
        now: float,
    ) -> None:
        """Let an invocation that has left its queue ride along in the sandbox's batch."""
        flow = rider.flow
        flow.in_flight += 1
        batch.add(rider)
        sandbox.uses += 1
        rider.dispatched = now
        rider.change(DISPATCH, now)
        self._outbox.append(Dispatch(rider.id, sandbox.id, sandbox.place, start, reason))
        domain.policy.dispatched(flow, rider, sandbox.device, domain.view)
        if flow.spec.datasets:
            self._prefetcher.call_dispatched(rider)

    def _hand_ahead(self, domain: Domain, choice: Choice, flow: Flow, now: float) -> bool:
        """Give the flow's first invocation to its busy sandbox on the chosen device, if it may have it (`ahead.py`)."""
        if flow.ahead is None or not flow.queue:
            return False
        busy = flow.ahead.place_for(flow.head)
        if busy is None or busy.device is not choice.device:
            return False
        self._commit_ahead(domain, choice, flow, busy, now)
        return True

    def _hand_more_ahead(self, domain: Domain, choice: Choice, flow: Flow, now: float) -> None:
        """Hand further invocations of the flow ahead by the same choice, while no other flow has anything queued.

        The policy confirms each of them. The commands are those of asking it for a choice each time.
        """
        policy, view, ahead = domain.policy, domain.view, flow.ahead
        if ahead is None or domain.queued != flow.queued or view.pools_slots or self._others_wait(domain):
            return
        while flow.queued and not policy.advice:
            busy = ahead.place_for(flow.head)
            if busy is None or busy.device is not choice.device or not policy.repeats(choice, view):
                return
            self._commit_ahead(domain, choice, flow, busy, now)

    def _others_wait(self, domain: Domain) -> bool:
        """Return whether another domain has invocations queued or advice to follow."""
        for other in self._registry.domains.values():
            if other is not domain and (other.queued or other.policy.advice):
                return True
        return False

    def _commit_ahead(self, domain: Domain, choice: Choice, flow: Flow, busy: Sandbox, now: float) -> None:
        invocation = take_head(flow)
        flow.in_flight += 1
        busy.ahead.append(invocation)
        busy.uses += 1
        invocation.sandbox = busy
        invocation.dispatched = now
        invocation.change(DISPATCH, now)
        invocation.take_slots(self._dispatches, ahead=True)
        self._dispatches += 1
        outbox = self._outbox
        outbox.append(Dispatch(invocation.id, busy.id, busy.place, Start.WARM, choice.reason))
        domain.policy.dispatched(flow, invocation, busy.device, domain.view)
        outbox.append(RunNext(invocation.id, busy.id))

    def adopt(self, invocation: Invocation, sandbox: Sandbox, *, now: float) -> None:
        """Take over an invocation that runs in a sandbox which another scheduler has started.

        Its policy sees an arrival and a dispatch, so that it counts the invocation like any other.
        """
        flow = invocation.flow
        append(flow, invocation)
        unqueue(flow, invocation)
        flow.in_flight += 1
        self._pool.assign(sandbox, invocation)
        self._pool.bring_memory(sandbox, invocation, now=now)
        invocation.sandbox = sandbox
        invocation.dispatched = now
        invocation.change(DISPATCH, now)
        invocation.take_slots(self._dispatches)
        self._dispatches += 1
        flow.domain.policy.dispatched(flow, invocation, sandbox.device, flow.domain.view)
        sandbox.change(RUN_SANDBOX)
        invocation.change(RUN, now)
        self._slices.begin_run(sandbox)

    def run(self, sandbox: Sandbox, invocation: Invocation, *, now: float) -> None:
        """Run the invocation in its sandbox, which is ready."""
        sandbox.change(RUN_SANDBOX)
        invocation.change(RUN, now)
        if sandbox.slice is not None:
            self._slices.begin_run(sandbox)
        batch = sandbox.batch
        if batch is None:
            self._outbox.append(Run(invocation.id, sandbox.id))
            return
        for rider in batch.members[1:]:
            rider.change(RUN, now)
        self._outbox.append(Run(invocation.id, sandbox.id, batch.begin()))


def _place_beyond_limit(flow: Flow) -> tuple[Device, Sandbox | None] | None:
    """Return an idle sandbox with its device, or the device with the most extra slots for a new one, or None."""
    for device, sandbox in flow.idle_places():
        if _extra_room(device) > 0:
            return device, sandbox
    devices = flow.domain.devices
    if len(devices) > MAX_CANDIDATES:  # look at others for each call
        first = flow.head.number % len(devices)
        devices = [*devices[first : first + MAX_CANDIDATES], *devices[: max(0, first + MAX_CANDIDATES - len(devices))]]
    best = max(devices, key=_extra_room, default=None)
    return (best, None) if best is not None and _extra_room(best) > 0 and best.host.allows(flow) else None


def _extra_room(device: Device) -> int:
    extra = device.spec.extra_slots
    return device.slots + extra - device.running if extra and device.slots else 0


def _resolve(
    choice: Choice, flow: Flow, domain: Domain, registry: Registry, pool: Pool
) -> tuple[tuple[Device, ...], Sandbox | None]:
    """Return the records that the choice refers to. Raises `PolicyError` if it cannot be carried out."""
    chosen = choice.sandbox
    sandbox = None if chosen is None else pool.sandboxes.get(chosen.id)
    if not flow.queue:
        problem = "its queue is empty"
    elif sandbox is None:
        device = registry.devices[choice.device.spec.name]
        if chosen is None and domain.view.can_start(flow, device):
            others = (registry.devices[other.spec.name] for other in domain.view.others(flow, device))
            return (device, *others), None
        problem = f"no sandbox can start on {device.spec.name} now"
    elif sandbox.flow is flow and sandbox.invocation is None and domain.view.can_use(sandbox):
        return sandbox.devices, sandbox
    else:
        problem = f"{sandbox.describe()} cannot take it now"
    raise PolicyError(f"{type(domain.policy).__name__} chose {flow.key} ({choice.reason}), but {problem}")
