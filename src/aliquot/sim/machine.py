"""The simulated hardware. It performs the core's commands by scheduling their results in virtual time.

A cold start takes max(cold, load), a swap-in takes load, and a run takes the call's actual time. With an interference
curve, concurrent runs on one device stretch each other, unless their declared shares add up to at most 1. A run without
a declared share counts as a whole device. Under elastic sharing, the slices divide the compute instead
(`contention.py`). With a shared bus, n concurrent transfers to one device take n times as long.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from aliquot.core.clock import after, between
from aliquot.core.commands import Command, LoadMemory, Move, Run, SetSlice, StartSandbox, StopSandbox
from aliquot.core.events import Event, MemoryLoaded, RunFinished, SandboxMoved, SandboxStarted
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.core.places import Place
from aliquot.sim.contention import ComputeClaim, InterferenceCurve, divide_compute
from aliquot.sim.event_queue import EventQueue, QueueEntry
from aliquot.sim.shared_resource import ResourceUse, SharedResource


class FunctionPlacement:
    """A function on one device, or on several whole devices of one kind, with its times and sizes there.

    A function on several devices has them to itself. Its compute is accounted to the first one.
    """

    __slots__ = (
        "accelerated", "bytes_to_move", "declared", "demand", "device", "devices", "function", "price_s", "run_s",
        "share", "speed", "times", "total",
    )  # fmt: skip

    def __init__(self, function: FunctionSpec, device: DeviceSpec, place: Place) -> None:
        self.function = function.name
        self.device = device.name
        self.devices = place
        self.speed = device.speed
        self.declared = function.times
        self.times = function.times_on(device)
        self.run_s = self.times.run_s or 0  # the declared time
        self.share = function.share_on(device)  # part of each device during a run
        self.total = self.share * len(place)
        self.price_s = self.total * device.price_s  # of a second in which it has its part of the devices
        self.demand = min(1, function.share or 1)  # part of each device that a run alone would use
        self.accelerated = device.kind != CPU  # the device has its own memory; `cpu` uses host memory
        self.bytes_to_move = function.memory_bytes * len(place) if self.accelerated else 0

    def batch_factor(self, size: int) -> float:
        """Return how many times longer a batch of this size runs than one call."""
        alone_s = self.times.run_s
        return (self.times.batch_run_s(size) or 0) / alone_s if alone_s else size


class SimulatedMachine:
    """All devices of a simulation, and the sandboxes on them."""

    def __init__(
        self,
        devices: Sequence[DeviceSpec],
        functions: Mapping[str, FunctionSpec],
        queue: EventQueue,
        interference: InterferenceCurve | None = None,
        *,
        shared_bus: bool = False,
        sliced: bool = False,
    ) -> None:
        self._functions = functions
        self._devices = {device.name: device for device in devices}
        self._placements: dict[tuple[str, Place], FunctionPlacement] = {}  # by function and place
        self._queue = queue
        self._sandboxes: dict[int, FunctionPlacement] = {}
        self._compute: dict[str, SharedResource[int]] = {}
        self._bus: dict[str, SharedResource[int]] = {}
        self._claims: dict[int, ComputeClaim] = {}  # by sandbox
        self.moves: dict[int, Move] = {}  # under way, by number
        self.shares_compute = sliced or interference is not None  # runs affect each other
        for device in devices:
            if sliced and device.kind != CPU:
                self._compute[device.name] = SharedResource(queue, self._sliced)
            elif interference is not None:
                self._compute[device.name] = SharedResource(queue, partial(_stretched, interference))
            elif sliced:
                self._compute[device.name] = SharedResource(queue, lambda uses: [1] * len(uses))
            if shared_bus:
                self._bus[device.name] = SharedResource(queue, lambda uses: [len(uses)] * len(uses))

    def performers(self) -> dict[type[Command], Callable[..., None]]:
        """Return the methods for commands that nothing but the machine performs."""
        return {
            SetSlice: self.set_slice,
            StopSandbox: self.stop,
            Move: self.move,
        }

    def placement(self, sandbox: int) -> FunctionPlacement:
        return self._sandboxes[sandbox]

    def start(self, command: StartSandbox, now: float) -> None:
        sandbox = command.sandbox
        placement = self._sandboxes[sandbox] = self._find_placement(command.function, command.place)
        times = placement.times
        started = SandboxStarted(sandbox)
        if not self._bus or not times.load_s:
            self._queue.add(after(now, max(times.cold_s, times.load_s or 0)), started)
            return
        process_up = after(now, times.cold_s)
        self._transfer(sandbox, times, now, lambda at: self._queue.add(max(at, process_up), started))

    def _find_placement(self, function: str, place: Place) -> FunctionPlacement:
        placement = self._placements.get((function, place))
        if placement is None:
            placement = FunctionPlacement(self._functions[function], self._devices[place[0]], place)
            self._placements[function, place] = placement
        return placement

    def load(self, command: LoadMemory, now: float) -> None:
        sandbox = command.sandbox
        times = self._sandboxes[sandbox].times
        loaded = MemoryLoaded(sandbox)
        if not self._bus or not times.load_s:
            self._queue.add(after(now, times.load_s or 0), loaded)
            return
        self._transfer(sandbox, times, now, lambda at: self._queue.add(at, loaded))

    def move(self, command: Move, now: float) -> None:
        """Move a sandbox to another device. That takes as long as to load its bytes. A run goes on there."""
        placement = self._sandboxes[command.sandbox]
        self.moves[command.move] = command
        self._queue.add(after(now, placement.times.load_s or 0), SandboxMoved(command.move))

    def moved(self, events: Iterable[Event], now: float) -> None:
        """Let runs go on where their sandboxes are now. Call this after `finished`, before the core sees the events."""
        for event in events:
            command = self.moves.pop(event.move, None) if type(event) is SandboxMoved else None
            before = None if command is None else self._sandboxes.get(command.sandbox)
            if command is None or before is None:  # it was stopped meanwhile
                continue
            sandbox = command.sandbox
            self._sandboxes[sandbox] = self._find_placement(before.function, command.to)
            if self.shares_compute and sandbox in self._compute[before.device]:
                use = self._compute[before.device].take(sandbox, now)
                self._compute[command.to[0]].begin(sandbox, use, now)

    def stop(self, command: StopSandbox, now: float) -> None:
        """Remove an idle sandbox and abort its transfers. The core ignores events about it that are already queued."""
        placement = self._sandboxes.pop(command.sandbox)
        self._claims.pop(command.sandbox, None)
        for device in placement.devices:
            if device in self._bus and command.sandbox in self._bus[device]:
                self._bus[device].end([command.sandbox], now, done=False)

    def set_slice(self, command: SetSlice, now: float) -> None:
        sandbox = command.sandbox
        self._claims[sandbox] = ComputeClaim(command.share, command.ceiling)
        device = self._sandboxes[sandbox].device
        if self.shares_compute and sandbox in self._compute[device]:
            self._compute[device].update_paces(now)

    def _sliced(self, uses: Mapping[int, ResourceUse]) -> list[float]:
        parts = divide_compute([self._claims[sandbox] for sandbox in uses])
        return [self._sandboxes[sandbox].share / part for sandbox, part in zip(uses, parts, strict=True)]

    def run(self, command: Run, actual_s: float | None, now: float, *, began: float | None = None) -> None:
        """Run a call for `actual_s` on the device that its function's times refer to, or for the declared time if None.

        `began` is the start of the run if the call has read files before `now`.
        """
        sandbox = command.sandbox
        placement = self._sandboxes[sandbox]
        run_s = placement.run_s if actual_s is None else _actual(placement, actual_s)
        if command.riders:
            run_s *= placement.batch_factor(1 + len(command.riders))
        if not self.shares_compute:
            whole_s = run_s if began is None else after(run_s, now - began)
            self._queue.add(after(now, run_s), RunFinished(command.invocation, sandbox, whole_s))
            return
        use = ResourceUse(run_s, placement.demand, now, partial(_run_finished, command), began=began)
        self._compute[placement.device].begin(sandbox, use, now)

    def finished(self, events: Iterable[RunFinished], now: float) -> None:
        """Release the compute of runs that end at the same time. Call this only if `shares_compute` is true."""
        by_device: dict[str, list[int]] = {}
        for event in events:
            by_device.setdefault(self._sandboxes[event.sandbox].device, []).append(event.sandbox)
        for device, sandboxes in by_device.items():
            self._compute[device].end(sandboxes, now, done=True)

    def _transfer(self, sandbox: int, times: Times, now: float, then: Callable[[float], object]) -> None:
        """Move the sandbox's bytes over the bus of each of its devices, then call `then` with the time."""
        buses = [self._bus[device] for device in self._sandboxes[sandbox].devices]

        def transferred(bus: SharedResource[int], at: float) -> None:
            bus.end([sandbox], at, done=True)
            if not any(sandbox in other for other in buses):
                then(at)

        for bus in buses:
            bus.begin(
                sandbox, ResourceUse(times.load_s or 0, 1, now, partial(_callback, partial(transferred, bus))), now
            )


def _stretched(curve: InterferenceCurve, uses: Mapping[int, ResourceUse]) -> list[float]:
    demand = sum(use.demand for use in uses.values())
    return [1 if demand <= 1 else curve.stretch(len(uses))] * len(uses)


def _callback(then: Callable[[float], None], _began: float, _at: float) -> QueueEntry:
    return then


def _run_finished(command: Run, began: float, at: float) -> QueueEntry:
    return RunFinished(command.invocation, command.sandbox, between(began, at))


def _actual(placement: FunctionPlacement, actual_s: float) -> float:
    """Scale a call's run time to this device, by the declared times or else by the device's speed."""
    declared, times = placement.declared, placement.times
    if not declared.run_s:
        return actual_s if placement.speed == 1 else actual_s / placement.speed
    if times.run_s == declared.run_s:
        return actual_s
    return actual_s * (times.run_s or 0) / declared.run_s
