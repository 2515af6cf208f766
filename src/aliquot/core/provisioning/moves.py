"""Move sandboxes between devices of one kind and node: live where the driver can, and otherwise by a hand-over.

A live move keeps the process. It may run, get a call or end one meanwhile, and room is reserved on the other device
first (`relocation.py`). A hand-over starts another sandbox there, ahead of calls. Once that is warm, the old one gets
no new call, ends its run and stops.

The operator may ask for a move. A provisioning policy lets one follow from forecasts: if the demand that is foreseen on
a device exceeds it for several ticks and another device has twice the room. Moves are few: one a device at a time, with
a pause, and none back before a minute is over.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aliquot.core.admission.plan import Plan
from aliquot.core.clock import after
from aliquot.core.commands import Command, Move, Purpose
from aliquot.core.device import Device
from aliquot.core.errors import EventError
from aliquot.core.events import Event, MoveAsked, MoveFailed, SandboxMoved
from aliquot.core.flow import Flow
from aliquot.core.interfaces import Expiry, ExpiryAction
from aliquot.core.lifecycle import BUSY, WARM
from aliquot.core.model import CPU
from aliquot.core.pool import Pool
from aliquot.core.provisioning.relocation import SandboxMove, relocate
from aliquot.core.records import Sandbox
from aliquot.core.registry import Registry
from aliquot.core.slices import SliceAllocator
from aliquot.core.timers import Timers
from aliquot.core.view import MAX_SHARES

CROWDED_TICKS = 3  # forecasts in a row that exceed a device before a sandbox leaves it
TIMES_THE_ROOM = 2  # of what moves, on the other device
PAUSE_S = 10.0  # between two moves from or to a device
STAY_S = 60.0  # before a sandbox moves again
HANDED_OVER_S = 60.0  # that a new sandbox waits for its first call
MAX_COMPARED = 16  # devices that are looked at for one move
OPERATOR = "the operator asked for it"
HANDED_OVER = "its calls go to sandbox {} on {}"


class HandOver(NamedTuple):
    """A sandbox that stops when another is warm."""

    old: Sandbox
    new: Sandbox


class Moves:
    """The moves that are under way, and the devices that are too full for what is foreseen."""

    def __init__(
        self,
        registry: Registry,
        pool: Pool,
        slices: SliceAllocator,
        plan: Plan,
        timers: Timers,
        outbox: list[Command],
    ) -> None:
        """`plan` knows the time of the current step."""
        self.live: dict[int, SandboxMove] = {}  # by number
        self.hand_overs: dict[int, HandOver] = {}  # by the new sandbox
        self.begun = self.done = self.failed = 0
        self._registry = registry
        self._pool = pool
        self._slices = slices
        self._plan = plan
        self._timers = timers
        self._outbox = outbox
        self._crowded: dict[int, int] = {}  # by device: forecasts in a row that exceed it
        self._device_moved: dict[int, float] = {}  # by device: when a sandbox came or went last
        self._sandbox_moved: dict[int, float] = {}  # by sandbox

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        """Return the function for each kind of event that concerns moves."""
        return {MoveAsked: self._asked, SandboxMoved: self._moved, MoveFailed: self._failed}

    # --- whether, and how ---------------------------------------------------------------------------------

    def refusal(self, number: int, name: str) -> str | None:
        """Return why the sandbox cannot move to the device of this name now, or None if it can."""
        sandbox, to = self._pool.sandboxes.get(number), self._registry.devices.get(name)
        if sandbox is None:
            return f"there is no sandbox {number}"
        if to is None:
            return f"there is no device {name}; there are {', '.join(self._registry.devices)}"
        return self._refusal(sandbox, to)

    def _refusal(self, sandbox: Sandbox, to: Device) -> str | None:
        source = sandbox.device
        if source is to:
            return f"it is on {to.spec.name} already"
        if len(sandbox.devices) > 1 or CPU in (source.spec.kind, to.spec.kind):
            return "only a sandbox with a part of one accelerator, or one whole, can move"
        if (source.spec.kind, source.spec.node) != (to.spec.kind, to.spec.node):
            return f"{to.spec.name} is of another kind, or on another node, than {source.spec.name}"
        if sandbox.flow.spec.one_per_device:
            return "a kernel graph stays with the executor of its device"
        if sandbox.state not in (WARM, BUSY) or sandbox.unused or sandbox.retired is not None or sandbox.ahead:
            return f"it is {sandbox.state}; only warm and busy sandboxes in use can move"
        if sandbox.move is not None or self._is_handed_over(sandbox):
            return "it is moving already"
        if source.plan is not None or to.plan is not None or sandbox.lane is not None:
            return "calls are promised on one of the devices"
        return None if _has_room(sandbox, to) else f"{to.spec.name} has no room for it without an eviction"

    def begin(self, sandbox: Sandbox, to: Device, reason: str) -> None:
        """Begin a move that `refusal` allows."""
        now = self._plan.now
        self.begun += 1
        for device in (sandbox.device, to):
            self._device_moved[device.index] = now
        if _is_live(sandbox, to):
            self._sandbox_moved[sandbox.id] = now
            move = self.live[self.begun] = SandboxMove(self.begun, sandbox, to)
            self._outbox.append(Move(move.number, sandbox.id, (to.spec.name,), reason))
            return
        new = self._pool.start_ahead(sandbox.flow, (to,), Purpose.HOLD, reason, now=now)
        self._sandbox_moved[new.id] = now
        new.expiry = Expiry(after(now, HANDED_OVER_S), ExpiryAction.STOP, reason="no call came after its hand-over")
        self._timers.arm(new)
        self.hand_overs[new.id] = HandOver(sandbox, new)

    # --- events -------------------------------------------------------------------------------------------

    def _asked(self, event: MoveAsked) -> None:
        sandbox, to = self._pool.sandboxes.get(event.sandbox), self._registry.devices.get(event.to)
        if sandbox is not None and to is not None and self._refusal(sandbox, to) is None:
            self.begin(sandbox, to, OPERATOR)

    def _moved(self, event: SandboxMoved) -> None:
        move = self._ended(event.move)
        if move is not None:
            self.done += 1
            relocate(move.sandbox, move.to, self._pool, self._slices, now=self._plan.now)

    def _failed(self, event: MoveFailed) -> None:
        if self._ended(event.move) is not None:
            self.failed += 1

    def _ended(self, number: int) -> SandboxMove | None:
        """Give back what was reserved for a move, and return it, or None if its sandbox or its device is gone."""
        if not 0 < number <= self.begun:
            raise EventError(f"there never was a move {number}")
        move = self.live.pop(number, None)
        if move is None or move.sandbox.move is not move:
            return None
        move.end()
        return move

    def ready(self, sandbox: Sandbox) -> None:
        """End a hand-over: the new sandbox is warm, so the old one gets no new call."""
        if not self.hand_overs or (pair := self.hand_overs.pop(sandbox.id, None)) is None:
            return
        old = pair.old
        if old.id not in self._pool.sandboxes or old.lane is not None:
            return
        self.done += 1
        old.retired = HANDED_OVER.format(sandbox.id, sandbox.device.spec.name)
        if old.invocation is None:
            self._pool.stop(old, old.retired)

    def _is_handed_over(self, sandbox: Sandbox) -> bool:
        """Return whether another sandbox is started in its place. Those that are gone are forgotten."""
        for new in [new for new in self.hand_overs if new not in self._pool.sandboxes]:
            del self.hand_overs[new]
        return any(each.old is sandbox for each in self.hand_overs.values())

    # --- forecasts ----------------------------------------------------------------------------------------

    def balance(self, flows: Sequence[tuple[Flow, float]]) -> None:
        """Move a sandbox from each device that forecasts exceed again and again. `flows` have what each will need."""
        needs = {flow.index: load_of(flow, high) for flow, high in flows}
        devices: dict[int, Device] = {}
        loads: dict[int, float] = {}
        for flow, _ in flows:
            for sandbox in flow.sandboxes.values():
                index = sandbox.device.index
                devices[index] = sandbox.device
                loads[index] = loads.get(index, 0.0) + needs[flow.index]
        now = self._plan.now
        self._sandbox_moved = {number: at for number, at in self._sandbox_moved.items() if now - at < STAY_S}
        for index in [index for index in self._crowded if loads.get(index, 0) <= MAX_SHARES]:
            del self._crowded[index]
        for device in devices.values():
            load = loads[device.index]
            if load <= MAX_SHARES:
                continue
            self._crowded[device.index] = self._crowded.get(device.index, 0) + 1
            if self._crowded[device.index] >= CROWDED_TICKS and self._may_move(device):
                self._relieve(device, load, loads, needs)

    def _may_move(self, device: Device) -> bool:
        return not device.moves and self._plan.now - self._device_moved.get(device.index, -PAUSE_S) >= PAUSE_S

    def _relieve(self, device: Device, load: float, loads: dict[int, float], needs: dict[int, float]) -> None:
        """Move the sandbox with the largest need that another device has twice the room for."""
        others = [other for other in device.group.devices.values() if other is not device and self._may_move(other)]
        others.sort(key=lambda other: (loads.get(other.index, 0.0), other.index))
        for sandbox in sorted(device.sandboxes.values(), key=lambda s: (-needs.get(s.flow.index, 0.0), s.id)):
            need = needs.get(sandbox.flow.index, 0.0)
            if not need or self._plan.now - self._sandbox_moved.get(sandbox.id, -STAY_S) < STAY_S:
                continue
            for other in others[:MAX_COMPARED]:
                room = 1 - loads.get(other.index, 0.0)
                if room >= TIMES_THE_ROOM * need and self._refusal(sandbox, other) is None:
                    del self._crowded[device.index]
                    foreseen = f"{load:.2g} of {device.spec.name} is foreseen to be needed, 1 is there"
                    self.begin(sandbox, other, f"{foreseen}, and {other.spec.name} has {room:.2g} left")
                    return


def load_of(flow: Flow, high: float) -> float:
    """Return the part of a device that one of the flow's sandboxes will need, if so many calls run at once."""
    spec = flow.spec
    classes = flow.classes
    slot = 1 / classes[0].spec.concurrency if classes else 1.0
    return (slot if spec.share is None else min(spec.share, 1.0)) * high / max(1, len(flow.sandboxes))


def _has_room(sandbox: Sandbox, to: Device) -> bool:
    """Return whether a device has room for another sandbox and its run, without an eviction."""
    spec, flow = sandbox.flow.spec, sandbox.flow
    share = to.default_share if spec.share is None else min(spec.share, 1.0)
    if to.default_share != sandbox.device.default_share and spec.share is None:
        return False
    if to.running >= to.slots or to.shares_used + share > MAX_SHARES or not spec.runs_on(to.spec):
        return False
    if spec.memory_bytes + spec.run_bytes > to.free_bytes or to.pool_full or to.device_class not in flow.classes:
        return False
    if spec.one_per_device and to.index in flow.sandboxes_on:
        return False
    return _is_live(sandbox, to) or (spec.instances is None and not to.host.lacks(spec.host_bytes))


def _is_live(sandbox: Sandbox, to: Device) -> bool:
    """Return whether the sandbox can move with its process. In a bounded pool no slot can be reserved for it."""
    return to.spec.movable and sandbox.device.spec.movable and to.pool_slots is None
