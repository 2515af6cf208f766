"""The plan: where the promised calls run, and in which order. It is part of the scheduler's state."""

from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, cast

from aliquot.core.admission.blocks import TOLERANCE_S, Block
from aliquot.core.admission.demand import (
    HEADROOM_LOAD,
    PLAIN_PART,
    RENEW_S,
    FlowDemand,
    KindDemand,
    active_tenants,
)
from aliquot.core.admission.estimates import outlook_of
from aliquot.core.admission.interfaces import Ask, LaneView, PlannedPlace
from aliquot.core.admission.kept_out import KeptOutCalls
from aliquot.core.admission.lanes import DevicePlan, Lane
from aliquot.core.admission.objective import Objective
from aliquot.core.admission.pins import unpin
from aliquot.core.admission.sandbox_choice import choose_sandbox
from aliquot.core.device_index import MAX_CANDIDATES, MAX_COMPARED
from aliquot.core.view import DeviceView, FlowView

if TYPE_CHECKING:
    from aliquot.core.admission.stages import PlannedStage
    from aliquot.core.device import Device
    from aliquot.core.flow import Flow
    from aliquot.core.pool import Pool
    from aliquot.core.records import Invocation, Sandbox
    from aliquot.core.registry import Registry

KEEP_S = 1.0  # that the plan of a device stays after its last block


class Plan:
    """The lanes of all devices on which calls are promised, and the demand that the rules of admission read."""

    def __init__(self, registry: "Registry", pool: "Pool") -> None:
        self._registry = registry
        self._pool = pool
        self.kept_out = KeptOutCalls(self, registry)
        self.withdrawn: list[Invocation] = []  # waiting calls without a block, to tell the policy
        self.devices: dict[int, DevicePlan] = {}  # by index of the device
        self.kinds: dict[str, KindDemand] = {}
        self.running: dict[int, Block] = {}  # promised runs, by sandbox
        self.changed: dict[tuple[int, int], Lane] = {}  # lanes in which a block may be able to start
        self.now: float = 0
        self.grace_s: float = 0  # after its due time that a block may be expected to end, before another has to go
        self._blocks = 0
        self._shares: dict[str, float] = {}  # of active tenants
        self._shares_at: float | None = None

    def flow(self, tenant: str, function: str) -> "Flow | None":
        return self._registry.flows.get((tenant, function))

    # --- devices ----------------------------------------------------------------------------------------

    def lanes(self, flow: FlowView, now: float) -> list[Lane]:
        """Return the lanes that a call of the flow could have."""
        devices = self._candidates(cast("Flow", flow))
        return [lane for device in devices for lane in self.open(device, now).lanes]

    def _candidates(self, flow: "Flow") -> "list[Device]":
        if flow.spec.device_count > 1 or flow.spec.run_bytes:  # a lane reserves one device, and no memory for runs
            return []
        domain = flow.domain
        if len(domain.devices) <= MAX_CANDIDATES:
            return [device for device in domain.devices if device.device_class in flow.classes and not device.moves]
        found = {device.index: device for device, _ in flow.idle_places()}
        for own in flow.classes[:MAX_COMPARED]:
            found.update((device.index, device) for device in islice(own.emptiest(), MAX_COMPARED))
        planned = (each.device for each in self.devices.values() if each.device.device_class in flow.classes)
        found.update((device.index, device) for device in islice(planned, MAX_COMPARED) if device.slots)
        return [device for device in islice(found.values(), MAX_CANDIDATES) if not device.moves]

    def open(self, device: "Device", now: float) -> DevicePlan:
        """Return the plan of a device. Runs that are there already are counted as plain ones."""
        found = device.plan
        if found is None:
            found = device.plan = self.devices[device.index] = DevicePlan(device, self, self.kind(device.spec.kind))
            for sandbox in device.sandboxes.values():
                if sandbox.invocation is not None:
                    found.occupy(sandbox, now)
        return found

    def occupy(self, sandbox: "Sandbox", now: float) -> None:
        """Count a plain run in the plans of its devices."""
        for device in sandbox.devices:
            if device.plan is not None:
                device.plan.occupy(sandbox, now)

    def close_unused(self, now: float) -> None:
        """Forget the plans of devices on which nothing is promised any more, so that plain calls need not ask."""
        for found in [each for each in self.devices.values() if each.empty and now - each.used_at >= KEEP_S]:
            self.forget(found)

    def forget(self, found: DevicePlan) -> None:
        """Drop the plan of a device that has no blocks."""
        del self.devices[found.device.index]
        found.device.plan = None
        found.device.note_freed()
        for lane in found.lanes:
            found.kind.unbounded -= lane.occupant is not None and lane.busy_until == inf
            if lane.occupant is not None:  # it may have lanes of other devices, too
                lane.occupant.occupies = tuple(own for own in lane.occupant.occupies if own is not lane)
            self.changed.pop((found.device.index, lane.number), None)

    def kind(self, name: str) -> KindDemand:
        """Return the demand on a kind of device."""
        found = self.kinds.get(name)
        if found is None:
            found = self.kinds[name] = KindDemand()
            self._count_lanes(name, found)
        return found

    def devices_changed(self) -> None:
        """Count the lanes of each kind again."""
        for name, found in self.kinds.items():
            self._count_lanes(name, found)

    def _count_lanes(self, name: str, found: KindDemand) -> None:
        classes = self._registry.index.classes.values()
        found.lanes = sum(own.spec.lane_count * len(own.devices) for own in classes if own.spec.kind == name)

    # --- places -----------------------------------------------------------------------------------------

    def place(self, ask: Ask, lane: LaneView, size: int = 1, due: float | None = None) -> PlannedPlace | None:
        """Return a new block's place in the lane, or None if a call would miss its due time or its cost limit."""
        flow, first = cast("Flow", ask.flow), cast(Lane, lane)
        if due is None and first.plan.is_closed():  # a call that is promised already may still move here
            return None
        objective = _objective(ask)
        length_s = self.bound_s(flow, first.device, size)
        choice = choose_sandbox(flow, first, outlook_of(flow, ask.now), ask.now)
        width = first.plan.width(flow)
        if length_s is None or choice is None or width > len(first.plan.lanes):
            return None
        due = objective.due if due is None else due
        key = objective.key(length_s, ask.now)
        lanes = (first,) if width == 1 else first.plan.together(first, width, key, ask.now)
        single_s = length_s if size == 1 else (self.bound_s(flow, first.device, 1) or length_s)
        cost = self.cost(flow, first.device, single_s + choice.start_s)
        if ask.cost_limit is not None and cost > ask.cost_limit:
            return None
        ends = first.plan.end_with(lanes, key, due, length_s, max(choice.ready, ask.ready), ask.now)
        return None if ends is None else PlannedPlace(first, lanes, None, size, length_s, choice.ready, ends, cost)

    def trial(self, ask: Ask, lane: LaneView, seconds: float) -> PlannedPlace | None:
        """Return a place for a call of unknown length in a lane that is idle now, or None."""
        flow, first = cast("Flow", ask.flow), cast(Lane, lane)
        if first.plan.is_closed():
            return None
        choice = choose_sandbox(flow, first, outlook_of(flow, ask.now), ask.now)
        width = first.plan.width(flow)
        lanes = first.plan.together(first, width, ask.now, ask.now)
        if choice is None or len(lanes) < width or any(each.occupant is not None or each.blocks for each in lanes):
            return None
        ends = choice.ready + seconds
        return PlannedPlace(first, lanes, None, 1, seconds, choice.ready, ends, self.cost(flow, first.device, seconds))

    def join(self, ask: Ask, lane: LaneView) -> PlannedPlace | None:
        """Return a place in a block that has room and ends in time, or could grow."""
        flow, own = cast("Flow", ask.flow), cast(Lane, lane)
        if flow.spec.batch == 1 or flow.index not in own.sandboxes or own.plan.is_closed():
            return None
        objective = _objective(ask)
        due = objective.due
        limit = flow.spec.batch if flow.batches is None else flow.batches.limit
        for block in own.blocks:
            if block.flow is not flow or not _may_join(block, objective, ask.ready):
                continue
            size = max(block.size, len(block.members) + 1)
            length_s = block.length_s if size == block.size else self.bound_s(flow, own.device, size)
            if size > limit or length_s is None or block.ends + length_s - block.length_s > due + TOLERANCE_S:
                continue
            if size > block.size and not own.plan.can_grow(block, length_s - block.length_s):
                continue
            members = len(block.members) + 1
            run_s = self.bound_s(flow, own.device, members) or length_s
            cost = self.cost(flow, own.device, run_s, members)
            if ask.cost_limit is None or cost <= ask.cost_limit:
                ends = block.ends + length_s - block.length_s
                return PlannedPlace(own, block.lanes, block, size, length_s, block.starts, ends, cost)
        return None

    def commit(self, placement: PlannedPlace, invocation: "Invocation", sandbox: "Sandbox | None", now: float) -> Block:
        """Put the call into the plan. Without a sandbox this is a draft, which gets one later or is taken back."""
        flow, objective = invocation.flow, invocation.objective
        assert objective is not None  # noqa: S101 - only calls with one are promised
        block = cast("Block | None", placement.block)
        lane = cast(Lane, placement.lane)
        if block is None:
            self._blocks += 1
            lanes = cast("tuple[Lane, ...]", placement.lanes)
            block = Block(self._blocks, flow, lanes, placement.size, placement.length_s)
            block.key = objective.key(placement.length_s, now)
            block.sandbox, block.ready = sandbox, placement.ready
            lane.plan.add(block)
        block.size, block.length_s = placement.size, placement.length_s
        block.members.append(invocation)
        block.due = min(block.due, objective.due)
        block.staged |= objective.stage is not None
        objective.block = block
        objective.bound_s = placement.length_s
        objective.kind = lane.device.spec.kind
        objective.lanes = len(block.lanes)
        begin = lane.blocks.index(block) if lane.blocks[0].starts >= now else 0
        lane.plan.refresh(block.lanes, now, begin)
        self.touch(block.lanes)
        return block

    def withdraw(self, invocation: "Invocation") -> None:
        """Take a call out of the plan that leaves without being dispatched. An empty block is dropped."""
        objective = invocation.objective
        if objective is None:
            return
        block, objective.block = objective.block, None
        self.refund(invocation)
        if block is None:
            self.withdrawn.append(invocation)
            return
        block.members.remove(invocation)
        if block.members:
            block.recount()
            block.lanes[0].plan.refresh(block.lanes, self.now)
        else:
            self.drop(block)
        self.touch(block.lanes)

    def stage_ended(self, stage: "PlannedStage", now: float) -> None:
        """Let the stages after one that has ended, or will not run, count on their inputs."""
        stage.ended = now
        for lane in stage.lanes_after():
            lane.plan.refresh((lane,), now)
            self.touch((lane,))

    def drop(self, block: Block) -> None:
        """Take a block that has not started out of its lanes, and unpin its sandbox if no other block counts on it."""
        lane = block.lanes[0]
        lane.plan.remove(block)
        lane.plan.refresh(block.lanes, self.now)
        lane.device.note_freed()
        self.touch(block.lanes)
        self.unpin_unused(block)

    def unpin_unused(self, block: Block) -> None:
        lane, sandbox = block.lanes[0], block.sandbox
        if sandbox is None or sandbox.lane is not lane:
            return
        if not any(other.sandbox is sandbox for other in lane.blocks):
            unpin(self._pool, sandbox, now=self.now)

    def reserve(self, invocation: "Invocation", seconds: float, now: float) -> None:
        """Count the lane time of a promised call that is planned to its tenant."""
        objective, tenant = invocation.objective, invocation.flow.key.tenant
        if objective is not None:
            objective.work_s = seconds * objective.lanes
            self.kind(objective.kind).reserve(tenant, objective.work_s, self.share(tenant, now), now)

    def refund(self, invocation: "Invocation", used_s: float = 0) -> None:
        """Give a tenant back what a call did not use of the time that was counted for it."""
        objective, tenant = invocation.objective, invocation.flow.key.tenant
        if objective is not None and objective.work_s:
            unused, objective.work_s = objective.work_s - used_s * objective.lanes, 0
            self.kind(objective.kind).reserve(tenant, -unused, self.share(tenant, self.now), self.now)

    def shrink(self, lane: Lane, now: float) -> None:
        """Reserve the blocks of a lane for the calls that they have, and no more."""
        for block in lane.blocks:
            length_s = self.bound_s(block.flow, lane.device, len(block.members))
            if block.size > len(block.members) and length_s is not None and length_s < block.length_s:
                block.size, block.length_s = len(block.members), length_s
        lane.plan.refresh((lane,), now)

    def touch(self, lanes: tuple[Lane, ...]) -> None:
        """Look at these lanes in the next decision."""
        for lane in lanes:
            lane.plan.used_at = self.now
            self.changed[lane.device.index, lane.number] = lane

    # --- figures that policies read ---------------------------------------------------------------------

    def bound_s(self, flow: FlowView, device: DeviceView, size: int = 1) -> float | None:
        own = cast("Flow", flow)
        return outlook_of(own, self.now).run_s(own.spec, device.spec, size, self.now)

    def start_s(self, flow: FlowView, device: DeviceView) -> float:
        own = cast("Flow", flow)
        return outlook_of(own, self.now).start_s(own.spec, device.spec, self.now, cold=True)

    def runs(self, flow: FlowView, device: DeviceView) -> int:
        return outlook_of(cast("Flow", flow), self.now).runs(device.spec.kind)

    def cost(self, flow: FlowView, device: DeviceView, seconds: float, size: int = 1) -> float:
        return device.spec.price_s * flow.spec.share_on(device.spec) * seconds / size

    def may_probe(self, flow: FlowView) -> bool:
        return outlook_of(cast("Flow", flow), self.now).probe is None

    # --- the three rules --------------------------------------------------------------------------------

    def expected(self, ask: Ask, device: DeviceView) -> FlowDemand:
        """Return the demand of the flow on this kind of device, after the target sizes were computed."""
        kind = self.kind(device.spec.kind)
        found = kind.flows[ask.flow.index]
        kind.renew(lambda flow, size: self.bound_s(flow, device, size), ask.now)
        return found

    def asked(self, ask: Ask) -> None:
        """Count a call that has arrived to the demand on each kind of device that could run it."""
        flow = cast("Flow", ask.flow)
        for name, spec in {own.spec.kind: own.spec for own in flow.classes}.items():
            self.kind(name).arrived(flow, flow.spec.lanes_on(spec), _limit(ask), _whole_limit(ask), ask.now)

    def target_size(self, ask: Ask, device: DeviceView) -> int:
        """Return how many calls a new block is reserved for."""
        return 1 if ask.flow.spec.batch == 1 else self.expected(ask, device).size

    def headroom_due(self, ask: Ask, device: DeviceView, seconds: float, due: float) -> float:
        """Return the earliest due time that leaves room for tighter deadlines and plain calls, or `due` if it does."""
        kind = self.kind(device.spec.kind)
        self.expected(ask, device)
        plain_waits = self.plain_waits(device.spec.kind)
        lanes = float(kind.lanes)
        if kind.load > HEADROOM_LOAD * kind.lanes:
            bound = lambda flow, size: self.bound_s(flow, device, size)  # noqa: E731 - as in `expected`
            lanes -= kind.tighter_load(_whole_limit(ask), self.shares(ask.now), ask.now, bound)
        elif not plain_waits:
            return due
        if plain_waits:
            lanes -= PLAIN_PART * kind.lanes
        work = sum(
            max(0.0, lane.work_before(due, ask.now))
            for own in self.devices.values()
            if own.device.spec.kind == device.spec.kind
            for lane in own.lanes
        )
        if work <= 0:
            return due
        own = seconds * ask.flow.spec.lanes_on(device.spec)
        return max(due, ask.now + (work + own) / lanes) if lanes > 0 else inf

    def plain_waits(self, kind: str) -> bool:
        """Return whether plain calls wait that could run on this kind of device."""
        return any(each.queued and each.uses(kind) for each in self._registry.domains.values())

    def shares(self, now: float) -> Mapping[str, float]:
        """Return the part of the devices of each active tenant, by weight."""
        if self._shares_at is None or now >= self._shares_at + RENEW_S:
            self._shares_at = now
            weights = self._registry.tenant_weights
            active = {tenant: weights.get(tenant, 1.0) for tenant in active_tenants(self._registry.tenant_flows, now)}
            total = sum(active.values())
            self._shares = {tenant: weight / total for tenant, weight in active.items()}
        return self._shares

    def share(self, tenant: str, now: float) -> float:
        return self.shares(now).get(tenant, 1.0)

    def refused_for_share(self, ask: Ask, device: DeviceView, seconds: float) -> float | None:
        """Return the seconds after which the tenant is within its share, or None if it is now."""
        tenant = ask.flow.key.tenant
        share = self.share(tenant, ask.now)
        if share >= 1:
            return None
        ahead = self.kind(device.spec.kind).tag(tenant, ask.now) - _objective(ask).due
        return ahead if ahead > TOLERANCE_S else None


def _may_join(block: Block, objective: Objective, ready: float) -> bool:
    """Return whether the inputs of a call are there when the block starts, and its stages stay in the order of keys."""
    stage = objective.stage
    if stage is None:
        return True
    if ready > block.starts + TOLERANCE_S or stage.key < block.key:
        return False
    return all(each.block is None or each.block.key < block.key for each in stage.before)


def _objective(ask: Ask) -> Objective:
    """Return the objective of a call that the policy is asked about. Such a call has one."""
    objective = cast("Invocation", ask.call).objective
    assert objective is not None  # noqa: S101 - see above
    return objective


def _limit(ask: Ask) -> float:
    return inf if ask.due is None else ask.due - ask.now


def _whole_limit(ask: Ask) -> float:
    """Return the limit by which calls are compared: that of the execution for its stages."""
    stage = _objective(ask).stage
    if stage is None:
        return _limit(ask)
    execution = stage.execution
    return inf if execution.deadline is None else execution.deadline - execution.arrived
