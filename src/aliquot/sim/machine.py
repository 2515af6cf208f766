"""The simulated hardware: performs the core's commands by letting time pass.

A start takes max(cold, load), a swap-in load, a run what the call really takes. With an interference curve the
invocations that run on one device stretch each other, unless their declared shares leave room for all; one that
declares no share would take the whole device if it could. Where sharing is elastic the compute is divided by the slices
instead (`division.py`). With a shared bus the transfers to one device slow each other down: n at once take n times as
long. All are re-timed whenever something begins or ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from aliquot.core.clock import after, between
from aliquot.core.commands import LoadMemory, Run, SetSlice, StartSandbox, StopSandbox
from aliquot.core.events import MemoryLoaded, RunFinished, SandboxStarted
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.core.places import Place
from aliquot.sim.division import ComputeClaim, divide_compute
from aliquot.sim.event_queue import EventQueue, QueueEntry
from aliquot.sim.interference import InterferenceCurve
from aliquot.sim.shared_resource import ResourceUse, SharedResource


class FunctionPlacement:
    """A function on a device, or on several whole ones of a kind: what its sandboxes there take.

    On several it has all of each of them to itself, so what it does there is counted with the first.
    """

    __slots__ = (
        "accelerated", "bytes_to_move", "declared", "demand", "device", "devices", "share", "speed", "times", "total",
    )  # fmt: skip

    def __init__(self, function: FunctionSpec, device: DeviceSpec, place: Place) -> None:
        self.device = device.name
        self.devices = place
        self.speed = device.speed
        self.declared = function.times
        self.times = function.times_on(device)
        self.share = function.share_on(device)  # of each device, while it runs
        self.total = self.share * len(place)
        self.demand = min(1, function.share or 1)  # what it would take of each if it were alone
        self.accelerated = device.kind != CPU  # with memory of its own; the `cpu` has the host's
        self.bytes_to_move = function.memory_bytes * len(place) if self.accelerated else 0


class SimulatedMachine:
    def __init__(
        self,
        devices: Sequence[DeviceSpec],
        functions: Mapping[str, FunctionSpec],
        agenda: EventQueue,
        interference: InterferenceCurve | None = None,
        *,
        shared_bus: bool = False,
        sliced: bool = False,
    ) -> None:
        self._functions = functions
        self._devices = {device.name: device for device in devices}
        self._homes: dict[tuple[str, Place], FunctionPlacement] = {}  # by function and place
        self._agenda = agenda
        self._home: dict[int, FunctionPlacement] = {}  # by sandbox
        self._compute: dict[str, SharedResource[int]] = {}
        self._bus: dict[str, SharedResource[int]] = {}
        self._claims: dict[int, ComputeClaim] = {}  # by sandbox
        # Whether what runs must be re-timed when something begins or ends.
        self.shares_compute = sliced or interference is not None
        for device in devices:
            if sliced and device.kind != CPU:
                self._compute[device.name] = SharedResource(agenda, self._sliced)
            elif interference is not None:
                self._compute[device.name] = SharedResource(agenda, partial(_stretched, interference))
            elif sliced:
                self._compute[device.name] = SharedResource(agenda, lambda uses: [1] * len(uses))
            if shared_bus:
                self._bus[device.name] = SharedResource(agenda, lambda uses: [len(uses)] * len(uses))

    def home(self, sandbox: int) -> FunctionPlacement:
        return self._home[sandbox]

    def start(self, command: StartSandbox, now: float) -> None:
        sandbox = command.sandbox
        home = self._home[sandbox] = self._find_home(command.function, command.place)
        times = home.times
        started = SandboxStarted(sandbox)
        if not self._bus or not times.load_s:
            self._agenda.add(after(now, max(times.cold_s, times.load_s or 0)), started)
            return
        process_up = after(now, times.cold_s)
        self._transfer(sandbox, times, now, lambda at: self._agenda.add(max(at, process_up), started))

    def _find_home(self, function: str, place: Place) -> FunctionPlacement:
        home = self._homes.get((function, place))
        if home is None:
            home = FunctionPlacement(self._functions[function], self._devices[place[0]], place)
            self._homes[function, place] = home
        return home

    def load(self, command: LoadMemory, now: float) -> None:
        sandbox = command.sandbox
        times = self._home[sandbox].times
        loaded = MemoryLoaded(sandbox)
        if not self._bus or not times.load_s:
            self._agenda.add(after(now, times.load_s or 0), loaded)
            return
        self._transfer(sandbox, times, now, lambda at: self._agenda.add(at, loaded))

    def stop(self, command: StopSandbox, now: float) -> None:
        """Only what is idle is stopped here; bytes on their way are given up, and the news of others will be late."""
        home = self._home.pop(command.sandbox)
        self._claims.pop(command.sandbox, None)
        for device in home.devices:
            if device in self._bus and command.sandbox in self._bus[device]:
                self._bus[device].end([command.sandbox], now, done=False)

    def set_slice(self, command: SetSlice, now: float) -> None:
        sandbox = command.sandbox
        self._claims[sandbox] = ComputeClaim(command.share, command.ceiling)
        device = self._home[sandbox].device
        if self.shares_compute and sandbox in self._compute[device]:
            self._compute[device].divide_anew(now)

    def _sliced(self, uses: Mapping[int, ResourceUse]) -> list[float]:
        parts = divide_compute([self._claims[sandbox] for sandbox in uses])
        return [self._home[sandbox].share / part for sandbox, part in zip(uses, parts, strict=True)]

    def run(self, command: Run, actual_s: float | None, now: float, *, began: float | None = None) -> None:
        """`actual_s` is what the call takes where its function's times were declared; None: just the declared.

        The run `began` before now where files had to be read first.
        """
        sandbox = command.sandbox
        home = self._home[sandbox]
        run_s = _actual(home, actual_s)
        if not self.shares_compute:
            whole_s = run_s if began is None else after(run_s, now - began)
            self._agenda.add(after(now, run_s), RunFinished(command.invocation, sandbox, whole_s))
            return
        use = ResourceUse(run_s, home.demand, now, partial(_run_finished, command))
        use.started = now if began is None else began
        self._compute[home.device].begin(sandbox, use, now)

    def finished(self, events: Iterable[RunFinished], now: float) -> None:
        """These runs, all of one moment, are over; to be told where they share compute."""
        by_device: dict[str, list[int]] = {}
        for event in events:
            by_device.setdefault(self._home[event.sandbox].device, []).append(event.sandbox)
        for device, sandboxes in by_device.items():
            self._compute[device].end(sandboxes, now, done=True)

    def _transfer(self, sandbox: int, times: Times, now: float, then: Callable[[float], object]) -> None:
        """Bring the sandbox's bytes over the bus of each of its devices; `then` is told when all are there."""
        buses = [self._bus[device] for device in self._home[sandbox].devices]

        def arrived(bus: SharedResource[int], at: float) -> None:
            bus.end([sandbox], at, done=True)
            if not any(sandbox in other for other in buses):
                then(at)

        for bus in buses:
            bus.begin(sandbox, ResourceUse(times.load_s or 0, 1, now, partial(_told, partial(arrived, bus))), now)


def _stretched(curve: InterferenceCurve, uses: Mapping[int, ResourceUse]) -> list[float]:
    demand = sum(use.demand for use in uses.values())
    return [1 if demand <= 1 else curve.stretch(len(uses))] * len(uses)


def _told(then: Callable[[float], None], _began: float, _at: float) -> QueueEntry:
    return then


def _run_finished(command: Run, began: float, at: float) -> QueueEntry:
    return RunFinished(command.invocation, command.sandbox, between(began, at))


def _actual(home: FunctionPlacement, actual_s: float | None) -> float:
    """A call's own run time, carried over to this device in proportion to the declared times, or else to its speed."""
    declared, here = home.declared, home.times
    if actual_s is None:
        return here.run_s or 0
    if not declared.run_s:
        return actual_s if home.speed == 1 else actual_s / home.speed
    if here.run_s == declared.run_s:
        return actual_s
    return actual_s * (here.run_s or 0) / declared.run_s
