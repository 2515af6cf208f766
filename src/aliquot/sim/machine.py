"""The simulated hardware: performs the core's commands by letting time pass.

A start takes max(cold, load), a swap-in load, a run what the call really takes. With an interference curve the
invocations that run on one device stretch each other: whenever their number changes, what each still has to do is
re-timed. Starting and loading are not stretched, nor do they stretch others.
"""

from collections.abc import Iterable, Mapping, Sequence

from aliquot.core.clock import after, between
from aliquot.core.commands import LoadMemory, Run, StartSandbox, StopSandbox
from aliquot.core.events import MemoryLoaded, RunFinished, SandboxStarted
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.agenda import Agenda
from aliquot.sim.interference import Curve


class Running:
    """One invocation at work."""

    __slots__ = ("entry", "left_s", "run", "since", "started")

    def __init__(self, run: Run, left_s: float, now: float) -> None:
        self.run = run
        self.left_s = left_s  # if it were alone from `since` on
        self.since = self.started = now
        self.entry = -1


class Machine:
    def __init__(
        self,
        devices: Sequence[DeviceSpec],
        functions: Mapping[str, FunctionSpec],
        agenda: Agenda,
        interference: Curve | None = None,
    ) -> None:
        self._times = {
            (function.name, device.name): function.times_on(device)
            for function in functions.values()
            for device in devices
        }
        self._functions = functions
        self._devices = {device.name: device for device in devices}
        self._agenda = agenda
        self._curve = interference
        self._home: dict[int, tuple[str, str]] = {}  # sandbox: function and device
        self._running: dict[str, dict[int, Running]] = {device.name: {} for device in devices}

    def start(self, command: StartSandbox, now: float) -> None:
        self._home[command.sandbox] = (command.function, command.device)
        times = self._times[command.function, command.device]
        self._agenda.add(after(now, max(times.cold_s, times.load_s or 0)), SandboxStarted(command.sandbox))

    def load(self, command: LoadMemory, now: float) -> None:
        times = self._times[self._home[command.sandbox]]
        self._agenda.add(after(now, times.load_s or 0), MemoryLoaded(command.sandbox))

    def stop(self, command: StopSandbox, now: float) -> None:
        _, device = self._home.pop(command.sandbox)
        running = self._running[device]
        if command.sandbox in running:
            self._retime(running, now)
            self._agenda.cancel(running.pop(command.sandbox).entry)
            self._set_finishes(running, now)

    def run(self, command: Run, actual_s: float | None, now: float) -> None:
        """`actual_s` is what the call takes where its function's times were declared; None: just the declared."""
        function, device = self._home[command.sandbox]
        run_s = _actual(self._functions[function].times, self._times[function, device], actual_s)
        running = self._running[device]
        if self._curve is None:
            finish = RunFinished(command.invocation, command.sandbox, run_s)
            work = running[command.sandbox] = Running(command, run_s, now)
            work.entry = self._agenda.add(after(now, run_s), finish)
            return
        self._retime(running, now)
        running[command.sandbox] = Running(command, run_s, now)
        self._set_finishes(running, now)

    def finished(self, events: Iterable[RunFinished], now: float) -> None:
        """These runs, all of one moment, are over."""
        touched = {}
        for event in events:
            device = self._home[event.sandbox][1]
            running = touched[device] = self._running[device]
            self._retime(running, now)
            del running[event.sandbox]
        for running in touched.values():
            self._set_finishes(running, now)

    def share(self, sandbox: int) -> float:
        """The part of its device that the sandbox takes while it runs."""
        function, device = self._home[sandbox]
        return self._functions[function].share_on(self._devices[device])

    def bytes(self, sandbox: int) -> int:
        return self._functions[self._home[sandbox][0]].memory_bytes

    def _retime(self, running: dict[int, Running], now: float) -> None:
        """Count what each has done at the pace that held until now."""
        if self._curve is None:
            return
        pace = self._curve.stretch(len(running)) if running else 1
        for work in running.values():
            work.left_s = max(0.0, work.left_s - (now - work.since) / pace)
            work.since = now

    def _set_finishes(self, running: dict[int, Running], now: float) -> None:
        if self._curve is None:
            return
        pace = self._curve.stretch(len(running)) if running else 1
        for sandbox, work in running.items():
            self._agenda.cancel(work.entry)
            at = after(now, work.left_s * pace)
            took_s = between(work.started, at)
            work.entry = self._agenda.add(at, RunFinished(work.run.invocation, sandbox, took_s))


def _actual(declared: Times, here: Times, actual_s: float | None) -> float:
    """A call's own run time, carried over to this device in proportion to the declared times."""
    if actual_s is None:
        return here.run_s or 0
    if not declared.run_s or here.run_s == declared.run_s:
        return actual_s
    return actual_s * (here.run_s or 0) / declared.run_s
