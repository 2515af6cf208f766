"""The warm pool: sandboxes from start to stop, and the device memory they hold.

An idle sandbox is in its flow's list of idle sandboxes on the device, and in the device's eviction orders. A sandbox
that has an invocation is in neither, and is never evicted. To free device memory the pool swaps out idle sandboxes in
eviction order. To free a slot of a bounded pool, or bounded host memory (`host_memory.py`), it stops idle ones.

An idle sandbox that is kept for a session (`session_sandboxes.py`) is in the list, but not in the eviction orders. It
is added to them when it is no longer kept, which the pool forces only when those orders are empty.
"""

from collections.abc import Mapping

from aliquot.core.admission.lanes import vacate
from aliquot.core.adoption import check_adoption
from aliquot.core.commands import Command, LoadMemory, Purpose, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.device import Device
from aliquot.core.errors import EventError, PolicyError
from aliquot.core.eviction_orders import make_stoppable, make_unevictable, make_unstoppable
from aliquot.core.flow import Flow
from aliquot.core.host_memory import HostMemory
from aliquot.core.interfaces import ENDS_KEEP_ALIVE, Expiry, ExpiryAction, KeepAlive
from aliquot.core.lifecycle import HOST_WARM, WARM, SandboxChange
from aliquot.core.provisioning.unused import end_unused, first_unused, mark_unused
from aliquot.core.records import Invocation, Sandbox, SessionState
from aliquot.core.run_memory import count_sandbox, discount_sandbox, give_back, hold
from aliquot.core.session_sandboxes import SessionSandboxes
from aliquot.core.slices import SliceAllocator
from aliquot.core.timers import Timers


class Pool:
    """All sandboxes: starts, loads, keeps, evicts and stops them."""

    def __init__(
        self,
        keepalive: KeepAlive,
        slots: int | None,
        timers: Timers,
        outbox: list[Command],
        slices: SliceAllocator,
    ) -> None:
        self.sandboxes: dict[int, Sandbox] = {}
        self.started = 0  # also the last number given out
        self.slots = slots
        self.keepalive = keepalive
        # Most policies let flows expire, not single sandboxes.
        self._expires_sandboxes = type(keepalive).sandbox_idled is not KeepAlive.sandbox_idled
        self.observes_calls = type(keepalive).flow_called is not KeepAlive.flow_called
        self._timers = timers
        self._outbox = outbox
        self._slices = slices
        self.session_sandboxes = SessionSandboxes(slots)
        self.short_flows: dict[int, Flow] = {}  # may have fewer sandboxes than are held ready (`provisioning/`)

    def start(
        self, invocation: Invocation, devices: tuple[Device, ...], reason: str, purpose: Purpose, *, now: float
    ) -> Sandbox:
        """Start a sandbox for the invocation, and reserve its bytes on each of the devices."""
        flow = invocation.flow
        if flow.spec.instances is not None:
            self._free_instance(flow, flow.spec.instances, now=now)
        for device in devices:
            if self.slots is not None and device.spec.memory_bytes is not None:
                self._free_pool_slot(device, invocation, now=now)
        self._free_host_memory(invocation, devices[0].host, now=now)
        self._make_room(devices, flow.spec.memory_bytes + flow.spec.run_bytes, flow, invocation.id, now=now)
        sandbox = self._add(self.started + 1, flow, devices)
        sandbox.began = now
        key, place = flow.key, sandbox.place
        self._outbox.append(StartSandbox(sandbox.id, key.tenant, key.function, place, invocation.id, purpose, reason))
        self._slices.create(sandbox)
        return sandbox

    def start_ahead(
        self, flow: Flow, devices: tuple[Device, ...], purpose: Purpose, reason: str, *, now: float
    ) -> Sandbox:
        """Start a sandbox before any call needs it. The caller has checked that there is room without an eviction."""
        sandbox = self._add(self.started + 1, flow, devices)
        sandbox.began = now
        mark_unused(sandbox)
        self.add_idle(sandbox, now=now)
        if self.slots is not None or sandbox.host.limit is not None:
            make_stoppable(sandbox, self.slots, now=now)
        self._outbox.append(StartSandbox(sandbox.id, *flow.key, sandbox.place, "", purpose, reason))
        self._slices.create(sandbox)
        return sandbox

    def adopt(self, number: int, flow: Flow, devices: tuple[Device, ...], *, runs: bool, now: float) -> Sandbox:
        """Take over a warm sandbox that another scheduler has started. The caller assigns the call that it runs."""
        if number <= 0 or number in self.sandboxes:
            raise EventError(f"a sandbox cannot be adopted as number {number}")
        check_adoption(flow, devices, self.slots, runs=runs)
        sandbox = self._add(number, flow, devices)
        self._slices.create(sandbox)
        sandbox.change(SandboxChange.READY)
        if not runs:
            self.release(sandbox, now=now)
        return sandbox

    def _add(self, number: int, flow: Flow, devices: tuple[Device, ...]) -> Sandbox:
        self.started = max(self.started, number)
        sandbox = Sandbox(number, flow, devices)
        self.sandboxes[number] = flow.sandboxes[number] = sandbox
        for device in devices:
            device.sandboxes[number] = sandbox
            device.resident_bytes += sandbox.bytes
        if flow.spec.one_per_device:
            count_sandbox(sandbox)
        sandbox.host.claimed += sandbox.host_bytes
        return sandbox

    def load(self, sandbox: Sandbox, reason: str, invocation: str | None = None, *, now: float) -> None:
        """Load a swapped-out sandbox into the memory of its devices again."""
        self._make_room(sandbox.devices, sandbox.bytes, sandbox.flow, invocation, now=now)
        sandbox.change(SandboxChange.LOAD)
        sandbox.began = now
        for device in sandbox.devices:
            device.resident_bytes += sandbox.bytes
        self._outbox.append(LoadMemory(sandbox.id, reason))

    def bring_memory(self, sandbox: Sandbox, invocation: Invocation, *, now: float) -> None:
        """Load a sandbox for the invocation that it was given, and hold the memory that its run needs besides."""
        if sandbox.state is HOST_WARM:
            self.load(sandbox, "a call was dispatched to it", invocation.id, now=now)
        size_bytes = sandbox.flow.spec.run_bytes
        self._make_room(sandbox.devices, size_bytes, sandbox.flow, invocation.id, now=now)
        hold(sandbox, size_bytes)

    def swap_in(self, flow: Flow, *, now: float) -> None:
        """Load the swapped-out sandboxes of the flow again, as far as they fit into free memory."""
        for sandbox in flow.swapped_out():
            if sandbox.bytes <= min(device.free_bytes for device in sandbox.devices):
                self.load(sandbox, "its flow has or expects calls", now=now)

    def swap_out(self, flow: Flow, *, now: float) -> None:
        """Move the memory of all idle sandboxes of the flow to the host."""
        for sandbox in flow.idle_sandboxes():
            if sandbox.swappable:
                self.stop_keeping(sandbox, now=now)
                self._unload(sandbox, "its flow runs ahead of others")

    def assign(self, sandbox: Sandbox, invocation: Invocation) -> None:
        """Assign the invocation to the sandbox, which is idle no longer."""
        if sandbox.lane is None:
            self.remove_idle(sandbox, used=True)
            if sandbox.host_bytes:
                sandbox.host.occupy(sandbox)
        sandbox.invocation = invocation
        sandbox.uses += 1
        sandbox.unload_when_ready = False
        sandbox.expiry = sandbox.deferred_expiry = None

    def release(self, sandbox: Sandbox, *, now: float) -> None:
        """Make the sandbox idle, or stop it if it is retired. One that is pinned stays with its lane."""
        if sandbox.planned:
            vacate(sandbox)
        if sandbox.run_bytes:
            give_back(sandbox)
        if sandbox.retired is not None:
            self.stop(sandbox, sandbox.retired)
            return
        if sandbox.host_bytes and sandbox.invocation is not None and sandbox.lane is None:
            self.vacate(sandbox)
        sandbox.invocation = None
        if sandbox.lane is not None:
            return
        self.add_idle(sandbox, now=now)
        if self.slots is not None or sandbox.host.limit is not None:
            make_stoppable(sandbox, self.slots, now=now)
        if self._expires_sandboxes:
            sandbox.expiry = self.keepalive.sandbox_idled(sandbox, now=now)
            if sandbox.expiry is not None:
                self._timers.arm(sandbox)

    def end_session(self, tenant: str, name: str, *, now: float) -> None:
        for sandbox in self.session_sandboxes.end(tenant, name):
            self.stop_keeping(sandbox, now=now)

    def keep(self, sandbox: Sandbox, session: SessionState, *, now: float) -> None:
        """Keep a sandbox that has just been released for the session, if the limits allow, instead of older ones."""
        if not session.alive or sandbox.state is not WARM or not self.session_sandboxes.may_keep(sandbox):
            return
        make_unevictable(sandbox, self.slots)
        self.session_sandboxes.add(sandbox, session)
        for device in sandbox.devices:
            while (other := self.session_sandboxes.surplus(device)) is not None:
                self.stop_keeping(other, now=now)

    def stop_keeping(self, sandbox: Sandbox, *, now: float) -> None:
        """Stop keeping the sandbox for its session, so that eviction and keep-alive apply to it again."""
        if sandbox.session is None:
            return
        self.session_sandboxes.remove(sandbox, sandbox.session)
        for device in sandbox.devices:
            if device.bounded:
                device.memory_order.add(sandbox, now=now)
        make_stoppable(sandbox, self.slots, now=now)
        if sandbox.deferred_expiry is not None:
            self.expire(sandbox, sandbox.deferred_expiry)

    def ready(self, sandbox: Sandbox, *, now: float) -> None:
        """Record that the sandbox's bytes are on its devices."""
        sandbox.change(SandboxChange.READY)
        if sandbox.idle:
            sandbox.flow.idle_at(sandbox.device).not_resident.pop(sandbox.id)
            self.add_idle(sandbox, now=now)
            for device in sandbox.devices:
                if sandbox.unused:
                    device.evictable_bytes -= sandbox.bytes  # it was counted from its start on
                device.note_freed()  # its bytes may be evicted from now on
            if sandbox.unload_when_ready:
                self._unload(sandbox, "keep-alive is over")
        sandbox.unload_when_ready = False

    def stop(self, sandbox: Sandbox, reason: str, room_for: str | None = None) -> None:
        self.drop(sandbox)
        self._outbox.append(StopSandbox(sandbox.id, reason, room_for))

    def drop(self, sandbox: Sandbox) -> None:
        """Remove a sandbox that is gone from all lists and counts."""
        if sandbox.move is not None:
            sandbox.move.end()
        if sandbox.planned:
            vacate(sandbox)
        if sandbox.idle:
            self.remove_idle(sandbox)
        else:
            self.vacate(sandbox)
        if sandbox.lane is not None:
            sandbox.lane.lose(sandbox)
        sandbox.host.forget(sandbox)
        if sandbox.flow.sandboxes_on:
            discount_sandbox(sandbox)
        if sandbox.run_bytes:
            give_back(sandbox)
        for device in sandbox.devices:
            device.memory_order.forget(sandbox)
            device.pool_order.forget(sandbox.pool_candidate)
            del device.sandboxes[sandbox.id]
            if sandbox.holds_memory:
                device.resident_bytes -= sandbox.bytes
                device.note_freed()
        sandbox.host.claimed -= sandbox.host_bytes
        self._slices.end_run(sandbox)
        sandbox.change(SandboxChange.END)
        sandbox.expiry = None
        del self.sandboxes[sandbox.id], sandbox.flow.sandboxes[sandbox.id]
        if sandbox.flow.spec.warm:
            self.short_flows[sandbox.flow.index] = sandbox.flow

    def flow_idled(self, flow: Flow, *, now: float) -> None:
        flow.expiry = self.keepalive.flow_idled(flow, now=now)
        self._timers.arm(flow)

    def flow_closed(self, flow: Flow) -> None:
        flow.expiry = None
        self.keepalive.flow_closed(flow)

    def expire_flow(self, flow: Flow, expiry: Expiry, *, now: float) -> None:
        """Carry out the keep-alive action of an idle flow, and schedule the next one. Others carry out `START`."""
        if expiry.action is ExpiryAction.LOAD:
            self.swap_in(flow, now=now)
            for sandbox in flow.idle_sandboxes() if flow.kept else ():
                sandbox.deferred_expiry = None
        elif expiry.action in ENDS_KEEP_ALIVE:
            idle = flow.idle_sandboxes()
            for sandbox in idle[: max(0, len(idle) - max(expiry.sandboxes, flow.spec.warm))]:
                self.expire(sandbox, expiry.action, expiry.reason)
        flow.expiry = self.keepalive.flow_expired(flow, expiry, now=now)
        self._timers.arm(flow)

    def expire(self, sandbox: Sandbox, action: ExpiryAction, reason: str = "keep-alive is over") -> None:
        """End keep-alive for an idle sandbox. One that is still loading is swapped out when it is ready."""
        sandbox.expiry = sandbox.deferred_expiry = None
        if sandbox.session is not None:
            sandbox.deferred_expiry = action
        elif action is ExpiryAction.STOP:
            self.stop(sandbox, reason)
        elif sandbox.state is WARM:
            self._unload(sandbox, reason)
        else:
            sandbox.unload_when_ready = sandbox.holds_memory

    def _unload(self, sandbox: Sandbox, reason: str, room_for: str | None = None) -> None:
        """Swap out an idle sandbox, unless the memory of its devices is unbounded."""
        device, flow = sandbox.device, sandbox.flow
        if sandbox.state is not WARM or not sandbox.swappable:
            return
        if sandbox.unused:
            end_unused(sandbox)
        idle = flow.idle_at(device)
        del idle.resident[sandbox.id]
        idle.not_resident[sandbox.id] = sandbox
        if flow.places is not None:
            flow.places.update(idle)
        for each in sandbox.devices:
            each.memory_order.forget(sandbox)
            each.evictable_bytes -= sandbox.bytes
            each.resident_bytes -= sandbox.bytes
        sandbox.change(SandboxChange.SWAP_OUT)
        self._outbox.append(UnloadMemory(sandbox.id, reason, room_for))
        if not idle.resident:
            flow.domain.policy.residency_changed(flow, device)

    def add_idle(self, sandbox: Sandbox, *, now: float) -> None:
        """List a sandbox among the idle ones of its flow and its devices."""
        device, flow = sandbox.device, sandbox.flow
        idle = flow.idle_at(device)
        if sandbox.state is not WARM:
            idle.not_resident[sandbox.id] = sandbox
            if flow.places is not None:
                flow.places.update(idle)
            return
        idle.resident[sandbox.id] = sandbox
        for each in sandbox.devices:
            each.evictable_bytes += sandbox.bytes
            if each.bounded:  # otherwise nothing is ever swapped out there
                each.memory_order.add(sandbox, now=now)
        if flow.places is not None:
            flow.places.update(idle)
        if len(idle.resident) == 1:
            flow.domain.policy.residency_changed(flow, device)

    def remove_idle(self, sandbox: Sandbox, *, used: bool = False) -> None:
        """Take a sandbox out of all lists of idle ones. `used`: it has got a call."""
        device, flow = sandbox.device, sandbox.flow
        idle = flow.idle_at(device)
        if sandbox.unused:
            end_unused(sandbox, used=used)
        if sandbox.session is not None:
            self.session_sandboxes.remove(sandbox, sandbox.session)
        if self.slots is not None or sandbox.host.limit is not None:
            make_unstoppable(sandbox, self.slots)
        resident = idle.resident.pop(sandbox.id, None) is not None
        if not resident and idle.not_resident.pop(sandbox.id, None) is None:
            return  # it has just started and was never idle
        if flow.places is not None:
            flow.places.update(idle)
        if resident:
            for each in sandbox.devices:
                if each.bounded:
                    each.memory_order.remove(sandbox)
                each.evictable_bytes -= sandbox.bytes
            if not idle.resident:
                flow.domain.policy.residency_changed(flow, device)

    def _make_room(
        self, devices: tuple[Device, ...], needed: int, flow: Flow, invocation: str | None, *, now: float
    ) -> None:
        for device in devices:
            while device.free_bytes < needed:
                if (unused := first_unused(device.unused, flow)) is not None:
                    self.stop(unused, "it was started ahead, and its memory is needed", invocation)
                    continue
                victim = device.memory_order.victim(now=now)
                if victim is not None:
                    self._unload(victim, "its memory is needed", invocation)
                elif not self._stop_keeping_first(device.kept, now=now):
                    raise PolicyError(f"{device.spec.name}: no room for {needed} bytes, all else is in use")

    def _free_instance(self, flow: Flow, instances: int, *, now: float) -> None:
        """Stop idle sandboxes of a flow at its limit, because the policy could use none of them for this call."""
        while len(flow.sandboxes) >= instances and (idle := flow.idle_sandboxes()):
            self.stop_keeping(idle[-1], now=now)
            if idle[-1].id in flow.sandboxes:  # a deferred expiry may have stopped it
                self.stop(idle[-1], "its function may have no more")

    def _free_pool_slot(self, device: Device, invocation: Invocation, *, now: float) -> None:
        while self.slots is not None and len(device.sandboxes) >= self.slots:
            victim = device.pool_order.victim(now=now)
            first = first_unused(device.unused, invocation.flow) or (None if victim is None else victim.sandbox)
            if first is not None:
                self.stop(first, "its pool slot is needed", invocation.id)
            elif not self._stop_keeping_first(device.kept, now=now):
                raise PolicyError(f"{device.spec.name}: all {self.slots} pool slots are in use")

    def _free_host_memory(self, invocation: Invocation, host: HostMemory, *, now: float) -> None:
        flow = invocation.flow
        needed = flow.spec.host_bytes
        while host.lacks(needed):
            victim = first_unused(host.unused, flow) or host.victim(flow.key.tenant, now=now)
            if victim is not None:
                self.stop(victim, "the host's memory is needed", invocation.id)
            elif not self._stop_keeping_first(host.kept, now=now):
                raise PolicyError(f"{flow.key}: no room for {needed} bytes of host memory, all else is in use")

    def vacate(self, sandbox: Sandbox) -> None:
        """Count the sandbox as idle. Flows that wait for host memory are tried again, whatever device they wait for."""
        if sandbox.host.vacate(sandbox):
            for device in sandbox.device.node.devices.values():
                device.note_freed()

    def _stop_keeping_first(self, kept: Mapping[int, Sandbox], *, now: float) -> bool:
        """Stop keeping the least recently used of these sandboxes, and return whether there was one."""
        first = next(iter(kept.values()), None)
        if first is not None:
            self.stop_keeping(first, now=now)
        return first is not None
