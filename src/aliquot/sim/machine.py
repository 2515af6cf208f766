"""The simulated hardware: performs the core's commands by letting time pass.

A start takes max(cold, load), a swap-in load, a run what the call really takes. With an interference curve the
invocations that run on one device stretch each other, unless their declared shares leave room for all; one that
declares no share would take the whole device if it could. With a shared bus the transfers to one device slow each other
down: n at once take n times as long. Both are re-timed whenever something begins or ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from aliquot.core.clock import after, between
from aliquot.core.commands import LoadMemory, Run, StartSandbox, StopSandbox
from aliquot.core.events import MemoryLoaded, RunFinished, SandboxStarted
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.sim.agenda import Agenda, Entry
from aliquot.sim.interference import Curve
from aliquot.sim.sharing import SharedResource, Use


class Machine:
    def __init__(
        self,
        devices: Sequence[DeviceSpec],
        functions: Mapping[str, FunctionSpec],
        agenda: Agenda,
        interference: Curve | None = None,
        *,
        shared_bus: bool = False,
    ) -> None:
        self._functions = functions
        self._devices = {device.name: device for device in devices}
        self._times = {
            (function.name, device.name): function.times_on(device)
            for function in functions.values()
            for device in devices
        }
        self._agenda = agenda
        self._home: dict[int, tuple[str, str]] = {}  # sandbox: function and device
        self._compute: dict[str, SharedResource[int]] = {}
        self._bus: dict[str, SharedResource[int]] = {}
        for name in self._devices:
            if interference is not None:
                self._compute[name] = SharedResource(agenda, partial(_stretch, interference))
            if shared_bus:
                self._bus[name] = SharedResource(agenda, lambda count, _: count)

    def start(self, command: StartSandbox, now: float) -> None:
        sandbox = command.sandbox
        self._home[sandbox] = (command.function, command.device)
        times = self._times[command.function, command.device]
        started = SandboxStarted(sandbox)
        if not self._bus or not times.load_s:
            self._agenda.add(after(now, max(times.cold_s, times.load_s or 0)), started)
            return
        process_up = after(now, times.cold_s)
        self._transfer(sandbox, times, now, lambda at: self._agenda.add(max(at, process_up), started))

    def load(self, command: LoadMemory, now: float) -> None:
        sandbox = command.sandbox
        times = self._times[self._home[sandbox]]
        loaded = MemoryLoaded(sandbox)
        if not self._bus or not times.load_s:
            self._agenda.add(after(now, times.load_s or 0), loaded)
            return
        self._transfer(sandbox, times, now, lambda at: self._agenda.add(at, loaded))

    def stop(self, command: StopSandbox, now: float) -> None:
        """Only what is idle is stopped here; bytes on their way are given up, and the news of others will be late."""
        _, device = self._home.pop(command.sandbox)
        if device in self._bus and command.sandbox in self._bus[device]:
            self._bus[device].end([command.sandbox], now, done=False)

    def run(self, command: Run, actual_s: float | None, now: float) -> None:
        """`actual_s` is what the call takes where its function's times were declared; None: just the declared."""
        sandbox = command.sandbox
        function, device = self._home[sandbox]
        spec = self._functions[function]
        run_s = _actual(spec.times, self._times[function, device], actual_s, self._devices[device].speed)
        if not self._compute:
            self._agenda.add(after(now, run_s), RunFinished(command.invocation, sandbox, run_s))
            return
        use = Use(run_s, spec.share or 1, now, partial(_run_finished, command))
        self._compute[device].begin(sandbox, use, now)

    def finished(self, events: Iterable[RunFinished], now: float) -> None:
        """These runs, all of one moment, are over."""
        if not self._compute:
            return
        by_device: dict[str, list[int]] = {}
        for event in events:
            by_device.setdefault(self._home[event.sandbox][1], []).append(event.sandbox)
        for device, sandboxes in by_device.items():
            self._compute[device].end(sandboxes, now, done=True)

    def share(self, sandbox: int) -> float:
        """The part of its device that the sandbox takes while it runs."""
        function, device = self._home[sandbox]
        return self._functions[function].share_on(self._devices[device])

    def accelerated(self, sandbox: int) -> bool:
        """Whether it is on a device with memory of its own; the `cpu` has the host's."""
        return self._devices[self._home[sandbox][1]].kind != CPU

    def bytes_to_move(self, sandbox: int) -> int:
        function, _ = self._home[sandbox]
        return self._functions[function].memory_bytes if self.accelerated(sandbox) else 0

    def _transfer(self, sandbox: int, times: Times, now: float, then: Callable[[float], object]) -> None:
        """Bring the sandbox's bytes over the bus; `then` is told when they are there."""
        bus = self._bus[self._home[sandbox][1]]

        def arrived(at: float) -> None:
            bus.end([sandbox], at, done=True)
            then(at)

        bus.begin(sandbox, Use(times.load_s or 0, 1, now, lambda _began, _at: arrived), now)


def _stretch(curve: Curve, count: int, demand: float) -> float:
    return 1 if demand <= 1 else curve.stretch(count)


def _run_finished(command: Run, began: float, at: float) -> Entry:
    return RunFinished(command.invocation, command.sandbox, between(began, at))


def _actual(declared: Times, here: Times, actual_s: float | None, speed: float) -> float:
    """A call's own run time, carried over to this device in proportion to the declared times, or else to its speed."""
    if actual_s is None:
        return here.run_s or 0
    if not declared.run_s:
        return actual_s if speed == 1 else actual_s / speed
    if here.run_s == declared.run_s:
        return actual_s
    return actual_s * (here.run_s or 0) / declared.run_s
