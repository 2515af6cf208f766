"""The warm pool: sandboxes from start to stop, and the device memory they hold.

An idle sandbox lies on its flow's shelf for its device and in the device's eviction orders; one that an
invocation holds is in neither. Room for bytes is made by swapping idle sandboxes out in eviction order, room for
a sandbox in a bounded pool, or on a host with bounded memory, by stopping idle ones; what an invocation holds is never
touched. An idle sandbox that a session holds (`holdings.py`) lies on its shelf, and in the eviction orders only once it
is let go, which is when nobody else is left there.
"""

from collections.abc import Mapping

from aliquot.core.commands import Command, LoadMemory, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.errors import EventError, PolicyError
from aliquot.core.holdings import Holdings
from aliquot.core.interfaces import Eviction, Expiry, ExpiryAction, KeepAlive
from aliquot.core.lifecycle import WARM, SandboxChange
from aliquot.core.records import Device, Flow, Invocation, Sandbox, Session
from aliquot.core.slices import Slices
from aliquot.core.timers import Timers


class Pool:
    def __init__(
        self, keepalive: KeepAlive, slots: int | None, timers: Timers, outbox: list[Command], slices: Slices
    ) -> None:
        self.sandboxes: dict[int, Sandbox] = {}
        self.started = 0  # also the last number given out
        self.slots = slots
        self._keepalive = keepalive
        self._timers = timers
        self._outbox = outbox
        self._slices = slices
        self.holdings = Holdings(slots)
        self.host_bytes = 0  # claimed by all sandboxes
        self.host_limit: int | None = None
        self._host_order: Eviction[Sandbox] | None = None  # idle, on whichever device: may be stopped

    def bound_host_memory(self, limit: int, order: Eviction[Sandbox]) -> None:
        if self.sandboxes:
            raise EventError("the host's memory must be known before the first sandbox starts")
        if limit < 0:
            raise EventError(f"a host has no {limit} bytes of memory")
        self.host_limit = self.holdings.host_limit = limit
        self._host_order = order

    def start(self, invocation: Invocation, devices: tuple[Device, ...], *, now: float) -> Sandbox:
        """Start a sandbox for the invocation, and reserve its bytes on each of the devices."""
        flow = invocation.flow
        if flow.spec.instances is not None:
            self._free_instance(flow, flow.spec.instances, now=now)
        for device in devices:
            if self.slots is not None and device.spec.memory_bytes is not None:
                self._free_pool_slot(device, now=now)
        if self._host_order is not None:
            self._free_host_memory(flow.spec.host_bytes, self._host_order, now=now)
        self._make_room(devices, flow.spec.memory_bytes, now=now)
        self.started += 1
        sandbox = Sandbox(self.started, flow, devices)
        self.sandboxes[sandbox.id] = flow.sandboxes[sandbox.id] = sandbox
        for device in devices:
            device.sandboxes[sandbox.id] = sandbox
            device.resident_bytes += sandbox.bytes
        self.host_bytes += sandbox.host_bytes
        self._outbox.append(StartSandbox(sandbox.id, flow.key.tenant, flow.key.function, sandbox.place, invocation.id))
        self._slices.cut(sandbox)
        return sandbox

    def load(self, sandbox: Sandbox, *, now: float) -> None:
        """Bring a swapped-out sandbox, held by its caller, back to its devices."""
        self._make_room(sandbox.devices, sandbox.bytes, now=now)
        sandbox.change(SandboxChange.LOAD)
        for device in sandbox.devices:
            device.resident_bytes += sandbox.bytes
        self._outbox.append(LoadMemory(sandbox.id))

    def prefetch(self, flow: Flow, *, displace: bool, now: float) -> None:
        """Bring back what is idle and swapped out: into free memory, or, for the first of them, at others' cost."""
        for sandbox in flow.swapped_out():
            room = min(
                device.free_bytes + (device.evictable_bytes - device.held_bytes if displace else 0)
                for device in sandbox.devices
            )
            if sandbox.bytes <= room:
                self.load(sandbox, now=now)
                displace = False

    def swap_out(self, flow: Flow, *, now: float) -> None:
        """Move the memory of all idle sandboxes of the flow to the host."""
        for sandbox in flow.idle_sandboxes():
            if sandbox.swappable:
                self.let_go(sandbox, now=now)
                self._unload(sandbox)

    def hold(self, sandbox: Sandbox, invocation: Invocation) -> None:
        """The sandbox is no longer idle: it belongs to this invocation."""
        self._unshelve(sandbox)
        sandbox.invocation = invocation
        sandbox.uses += 1
        sandbox.unwanted = False
        sandbox.expiry = sandbox.overdue = None

    def release(self, sandbox: Sandbox, *, now: float) -> None:
        """The sandbox is idle from now on."""
        sandbox.invocation = None
        if sandbox.retired is not None:
            self.stop(sandbox, sandbox.retired)
            return
        self._shelve(sandbox, now=now)
        self._list(sandbox, now=now)
        sandbox.expiry = self._keepalive.sandbox_idled(sandbox, now=now)
        self._timers.arm(sandbox)

    def end_session(self, tenant: str, name: str, *, now: float) -> None:
        for sandbox in self.holdings.end(tenant, name):
            self.let_go(sandbox, now=now)

    def keep(self, sandbox: Sandbox, session: Session, *, now: float) -> None:
        """The session holds the sandbox that has just been released, if it may; others are let go for it."""
        if not session.living or sandbox.state is not WARM or not self.holdings.may_hold(sandbox):
            return
        self._unlist(sandbox)
        self.holdings.add(sandbox, session)
        for device in sandbox.devices:
            while (other := self.holdings.surplus(device)) is not None:
                self.let_go(other, now=now)

    def let_go(self, sandbox: Sandbox, *, now: float) -> None:
        """No session holds it any more: it may be evicted as others may, and keep-alive gets what it wanted."""
        if sandbox.session is None:
            return
        self.holdings.remove(sandbox, sandbox.session)
        for device in sandbox.devices:
            device.memory_order.add(sandbox, now=now)
        self._list(sandbox, now=now)
        if sandbox.overdue is not None:
            self.expire(sandbox, sandbox.overdue)

    def ready(self, sandbox: Sandbox, *, now: float) -> None:
        """Its bytes are on the device."""
        sandbox.change(SandboxChange.READY)
        if sandbox.invocation is None:
            sandbox.flow.shelf(sandbox.device).others.pop(sandbox.id)
            self._shelve(sandbox, now=now)
            if sandbox.unwanted:
                self._unload(sandbox)
        sandbox.unwanted = False

    def stop(self, sandbox: Sandbox, reason: str) -> None:
        self.drop(sandbox)
        self._outbox.append(StopSandbox(sandbox.id, reason))

    def drop(self, sandbox: Sandbox) -> None:
        """The sandbox is gone."""
        if sandbox.invocation is None:
            self._unshelve(sandbox)
        if self._host_order is not None:
            self._host_order.forget(sandbox)
        for device in sandbox.devices:
            device.memory_order.forget(sandbox)
            device.pool_order.forget(sandbox)
            del device.sandboxes[sandbox.id]
            if sandbox.holds_memory:
                device.resident_bytes -= sandbox.bytes
                device.freed += 1
        self.host_bytes -= sandbox.host_bytes
        self._slices.end(sandbox)
        sandbox.change(SandboxChange.END)
        sandbox.expiry = None
        del self.sandboxes[sandbox.id], sandbox.flow.sandboxes[sandbox.id]

    def flow_idled(self, flow: Flow, *, now: float) -> None:
        flow.expiry = self._keepalive.flow_idled(flow, now=now)
        self._timers.arm(flow)

    def flow_closed(self, flow: Flow) -> None:
        flow.expiry = None
        self._keepalive.flow_closed(flow)

    def expire_flow(self, flow: Flow, expiry: Expiry, *, now: float) -> None:
        """Keep-alive has an end for the idle flow, or a next stage."""
        if expiry.action is ExpiryAction.LOAD:
            self.prefetch(flow, displace=False, now=now)
            for sandbox in flow.idle_sandboxes() if flow.held else ():
                sandbox.overdue = None
        else:
            for sandbox in flow.idle_sandboxes():
                self.expire(sandbox, expiry.action)
        flow.expiry = self._keepalive.flow_expired(flow, expiry, now=now)
        self._timers.arm(flow)

    def expire(self, sandbox: Sandbox, action: ExpiryAction) -> None:
        """Keep-alive is over for an idle sandbox; one whose bytes are still on their way gives them back on arrival."""
        sandbox.expiry = sandbox.overdue = None
        if sandbox.session is not None:
            sandbox.overdue = action
        elif action is ExpiryAction.STOP:
            self.stop(sandbox, "keep-alive is over")
        elif sandbox.state is WARM:
            self._unload(sandbox)
        else:
            sandbox.unwanted = sandbox.holds_memory

    def _unload(self, sandbox: Sandbox) -> None:
        """Swap out an idle sandbox; where memory is unbounded it stays."""
        device, flow = sandbox.device, sandbox.flow
        if sandbox.state is not WARM or not sandbox.swappable:
            return
        shelf = flow.shelf(device)
        del shelf.resident[sandbox.id]
        shelf.others[sandbox.id] = sandbox
        for each in sandbox.devices:
            each.memory_order.forget(sandbox)
            each.evictable_bytes -= sandbox.bytes
            each.resident_bytes -= sandbox.bytes
        sandbox.change(SandboxChange.SWAP_OUT)
        self._outbox.append(UnloadMemory(sandbox.id))
        if not shelf.resident:
            flow.domain.policy.residency_changed(flow, device)

    def _shelve(self, sandbox: Sandbox, *, now: float) -> None:
        device, flow = sandbox.device, sandbox.flow
        shelf = flow.shelf(device)
        if sandbox.state is not WARM:
            shelf.others[sandbox.id] = sandbox
            return
        shelf.resident[sandbox.id] = sandbox
        for each in sandbox.devices:
            each.evictable_bytes += sandbox.bytes
            each.freed += 1
            each.memory_order.add(sandbox, now=now)
        if len(shelf.resident) == 1:
            flow.domain.policy.residency_changed(flow, device)

    def _list(self, sandbox: Sandbox, *, now: float) -> None:
        """It is idle and may be stopped."""
        if self.slots is not None:
            for device in sandbox.devices:
                device.pool_order.add(sandbox, now=now)
        if self._host_order is not None:
            self._host_order.add(sandbox, now=now)

    def _unlist(self, sandbox: Sandbox) -> None:
        """It may neither be swapped out nor stopped."""
        if self._host_order is not None:
            self._host_order.remove(sandbox)
        for device in sandbox.devices:
            device.memory_order.remove(sandbox)
            if self.slots is not None:
                device.pool_order.remove(sandbox)

    def _unshelve(self, sandbox: Sandbox) -> None:
        device, flow = sandbox.device, sandbox.flow
        shelf = flow.shelf(device)
        if sandbox.session is not None:
            self.holdings.remove(sandbox, sandbox.session)
        if self.slots is not None:
            for each in sandbox.devices:
                each.pool_order.remove(sandbox)
        if self._host_order is not None:
            self._host_order.remove(sandbox)
        if shelf.others.pop(sandbox.id, None) is not None:
            return
        if shelf.resident.pop(sandbox.id, None) is None:
            return  # just started: never shelved
        for each in sandbox.devices:
            each.memory_order.remove(sandbox)
            each.evictable_bytes -= sandbox.bytes
        if not shelf.resident:
            flow.domain.policy.residency_changed(flow, device)

    def _make_room(self, devices: tuple[Device, ...], needed: int, *, now: float) -> None:
        for device in devices:
            while device.free_bytes < needed:
                victim = device.memory_order.victim(now=now)
                if victim is not None:
                    self._unload(victim)
                elif not self._let_go_first(device.held, now=now):
                    raise PolicyError(f"{device.spec.name}: no room for {needed} bytes, all else is in use")

    def _free_instance(self, flow: Flow, instances: int, *, now: float) -> None:
        """The flow has as many sandboxes as it may, one of them idle where it cannot be used now: that one goes."""
        while len(flow.sandboxes) >= instances and (idle := flow.idle_sandboxes()):
            self.let_go(idle[-1], now=now)
            if idle[-1].id in flow.sandboxes:  # keep-alive may have waited for that
                self.stop(idle[-1], "its function may have no more")

    def _free_pool_slot(self, device: Device, *, now: float) -> None:
        while self.slots is not None and len(device.sandboxes) >= self.slots:
            victim = device.pool_order.victim(now=now)
            if victim is not None:
                self.stop(victim, "its pool slot is needed")
            elif not self._let_go_first(device.held, now=now):
                raise PolicyError(f"{device.spec.name}: all {self.slots} pool slots are in use")

    def _free_host_memory(self, needed: int, order: Eviction[Sandbox], *, now: float) -> None:
        """As far as idle sandboxes can give it; what runs may claim more than there is: limits are seldom used up."""
        while self.host_limit is not None and self.host_bytes + needed > self.host_limit:
            victim = order.victim(now=now)
            if victim is not None:
                self.stop(victim, "the host's memory is needed")
            elif not self._let_go_first(self.holdings.held, now=now):
                return

    def _let_go_first(self, held: Mapping[int, Sandbox], *, now: float) -> bool:
        """Nobody else is left to make room: then the one of these used least recently; whether there was one."""
        first = next(iter(held.values()), None)
        if first is not None:
            self.let_go(first, now=now)
        return first is not None
