"""Turn the steps of a journal into a trace that Perfetto and speedscope show.

Each device is a process with a thread for each sandbox, on which starts, loads and runs are slices. The process
`queues` has a thread for each function: a call's arrival with an arrow to its run, and its wait. Prefetched files are a
process, too. Stops and swaps are marks, and the numbers of waiting calls and busy sandboxes are counters.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from aliquot.core.commands import (
    Command,
    Complete,
    Dispatch,
    Fail,
    Fetch,
    LoadMemory,
    Reject,
    Run,
    StartSandbox,
    StopSandbox,
    UnloadMemory,
)
from aliquot.core.events import (
    Event,
    FetchEnded,
    InvocationArrived,
    MemoryLoaded,
    RunFinished,
    SandboxLost,
    SandboxStarted,
)
from aliquot.core.model import FlowKey
from aliquot.core.places import Place, place_text
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.chrome_events import TraceEvent, TraceEvents
from aliquot.live.invocations.journal.writer import JournalStep

_MIN_SLICE_US = 1.0  # an arrival is shown as a slice, because arrows go from slice to slice


class _OpenSlice(NamedTuple):
    """A slice that has begun."""

    name: str
    since_us: float
    args: dict[str, Any]


class _TracedSandbox:
    """A sandbox with the place of its thread, and what it does."""

    def __init__(self, flow: FlowKey, process: int) -> None:
        self.flow = flow
        self.process = process
        self.doing: _OpenSlice | None = None  # starts or loads
        self.finished_us = 0.0  # the end of its last run
        self.runs = False


class _TracedCall:
    """A call that has arrived, and not ended."""

    def __init__(self, number: int, flow: FlowKey, arrived_us: float) -> None:
        self.number = number
        self.flow = flow
        self.arrived_us = arrived_us
        self.dispatch: Dispatch | None = None
        self.dispatched_us = 0.0
        self.began_us: float | None = None


class ChromeTrace:
    """Takes the steps of a journal one after another, and gives the events of the trace."""

    def __init__(self, from_s: float) -> None:
        """Begin at `from_s`, in epoch seconds. Earlier ends are left out."""
        self._from_us = 1e6 * from_s
        self._events = TraceEvents(self._from_us)
        self._queues = self._events.process("queues")
        self._flows: dict[FlowKey, int] = {}
        self._sandboxes: dict[int, _TracedSandbox] = {}
        self._calls: dict[str, _TracedCall] = {}
        self._batches: dict[str, tuple[str, ...]] = {}
        self._fetches: dict[int, Fetch] = {}
        self._waiting = 0
        self._running: dict[int, int] = {}  # by process
        self.calls = 0  # that have arrived in the trace
        self._takers = self._make_takers()

    def _make_takers(self) -> dict[type[Event | Command], Callable[..., None]]:
        return {
            InvocationArrived: self._arrive,
            SandboxStarted: lambda event: self._end_doing(event.sandbox),
            MemoryLoaded: lambda event: self._end_doing(event.sandbox),
            SandboxLost: lambda event: self._leave(event.sandbox, "lost", {"reason": event.reason}),
            RunFinished: self._finish_run,
            FetchEnded: self._end_fetch,
            StartSandbox: self._start,
            LoadMemory: lambda command: self._begin_doing(command.sandbox, "load", {"reason": command.reason}),
            UnloadMemory: lambda command: self._mark(command.sandbox, "swapped out", _why(command)),
            StopSandbox: lambda command: self._leave(command.sandbox, "stopped", _why(command)),
            Dispatch: self._dispatch,
            Run: self._run,
            Complete: lambda command: self._end(command.invocation, "completed", ""),
            Fail: lambda command: self._end(command.invocation, "failed", command.reason),
            Reject: lambda command: self._end(command.invocation, "refused", command.reason),
            Fetch: self._begin_fetch,
        }

    def begin(self, scheduler: Scheduler) -> None:
        """Take the sandboxes and calls that the reading, or a run of the server, begins with."""
        for name, call in self._calls.items():
            if call.dispatch is None:
                self._end_wait(name, call)
        self._sandboxes.clear()
        for number, sandbox in scheduler.pool.sandboxes.items():
            self._add_sandbox(number, sandbox.flow.key, sandbox.place)
        self._calls.clear()
        self._batches.clear()
        self._fetches.clear()
        self._waiting = 0
        self._running.clear()

    def take(self, step: JournalStep, now: float) -> Iterator[TraceEvent]:
        """Take a step that happened at `now`, in epoch seconds, and yield the events of the trace that it gives."""
        self._events.now_us = 1e6 * now
        for message in (*step.events, *step.commands):
            taker = self._takers.get(type(message))
            if taker is not None:
                taker(message)
        yield from self._events.taken()

    # --- sandboxes --------------------------------------------------------------------------------------

    def _add_sandbox(self, number: int, flow: FlowKey, place: Place) -> _TracedSandbox:
        made = self._sandboxes[number] = _TracedSandbox(flow, self._events.process(place_text(place)))
        self._events.name_thread(made.process, number, f"sandbox {number}: {'/'.join(flow)}")
        return made

    def _start(self, command: StartSandbox) -> None:
        self._add_sandbox(command.sandbox, FlowKey(command.tenant, command.function), command.place)
        args = {"purpose": command.purpose, "reason": command.reason, "activation": command.invocation}
        self._begin_doing(command.sandbox, "start", args)

    def _begin_doing(self, number: int, name: str, args: dict[str, Any]) -> None:
        sandbox = self._sandboxes.get(number)
        if sandbox is not None:
            sandbox.doing = _OpenSlice(name, self._events.now_us, args)

    def _end_doing(self, number: int) -> None:
        sandbox = self._sandboxes.get(number)
        if sandbox is not None and sandbox.doing is not None:
            name, since_us, args = sandbox.doing
            self._events.slice(sandbox.process, number, name, since_us, args)
            sandbox.doing = None

    def _mark(self, number: int, name: str, args: dict[str, Any]) -> None:
        sandbox = self._sandboxes.get(number)
        if sandbox is not None:
            self._end_doing(number)
            self._events.add("i", sandbox.process, number, name, s="t", args=args)

    def _leave(self, number: int, name: str, args: dict[str, Any]) -> None:
        self._mark(number, name, args)
        sandbox = self._sandboxes.pop(number, None)
        if sandbox is not None:
            self._set_running(sandbox, runs=False)

    # --- calls ------------------------------------------------------------------------------------------

    def _arrive(self, event: InvocationArrived) -> None:
        if event.invocation in self._calls:
            return
        self.calls += self._events.now_us >= self._from_us
        flow = FlowKey(event.tenant, event.function)
        call = self._calls[event.invocation] = _TracedCall(self.calls, flow, self._events.now_us)
        self._count_waiting(1)
        thread = self._flow_thread(flow)
        self._events.slice(
            self._queues, thread, "arrived", call.arrived_us, {"activation": event.invocation}, _MIN_SLICE_US
        )
        self._events.add("s", self._queues, thread, "call", cat="call", id=call.number)
        self._events.add("b", self._queues, thread, "/".join(flow), cat="wait", id=event.invocation)

    def _dispatch(self, command: Dispatch) -> None:
        call = self._calls.get(command.invocation)
        if call is not None:
            if call.dispatch is None:
                self._end_wait(command.invocation, call)
            call.dispatch, call.dispatched_us = command, self._events.now_us

    def _end_wait(self, invocation: str, call: _TracedCall) -> None:
        self._count_waiting(-1)
        if call.arrived_us >= self._from_us:
            thread = self._flow_thread(call.flow)
            self._events.add("e", self._queues, thread, "/".join(call.flow), cat="wait", id=invocation)

    def _run(self, command: Run) -> None:
        members = (command.invocation, *command.riders)
        if command.riders:
            self._batches[command.invocation] = members
        sandbox = self._sandboxes.get(command.sandbox)
        if sandbox is not None:
            self._set_running(sandbox, runs=True)
        for name in members:
            call = self._calls.get(name)
            if call is not None:
                call.began_us = self._events.now_us

    def _finish_run(self, event: RunFinished) -> None:
        """Show a run. One that was handed ahead began when the run before it ended."""
        sandbox = self._sandboxes.get(event.sandbox)
        if sandbox is None:
            return
        before_us, sandbox.finished_us = sandbox.finished_us, self._events.now_us
        self._set_running(sandbox, runs=False)
        members = self._batches.pop(event.invocation, (event.invocation,))
        calls = [(name, self._calls[name]) for name in members if name in self._calls]
        if not calls:
            return
        name, first = calls[0]
        if first.began_us is None:
            first.began_us = max(before_us, first.dispatched_us)
        args = {"activation": name, **_placed(first.dispatch)}
        if len(members) > 1:
            args["together"] = len(members)
        self._events.slice(sandbox.process, event.sandbox, "/".join(first.flow), first.began_us, args)
        for _, call in calls:
            if call.arrived_us >= self._from_us:
                at = {"ts": first.began_us, "bp": "e"}
                self._events.add("f", sandbox.process, event.sandbox, "call", cat="call", id=call.number, **at)

    def _end(self, invocation: str, end: str, reason: str) -> None:
        call = self._calls.pop(invocation, None)
        if call is None:
            return
        if call.dispatch is None:
            self._end_wait(invocation, call)
        if end != "completed":
            args = {"activation": invocation, "reason": reason}
            self._events.add("i", self._queues, self._flow_thread(call.flow), end, s="t", args=args)

    # --- files ------------------------------------------------------------------------------------------

    def _begin_fetch(self, command: Fetch) -> None:
        self._fetches[command.fetch] = command
        args = {"session": command.session, "reason": command.reason}
        name = f"{command.dataset}/{command.path}"
        self._events.add("b", self._prefetches(), 0, name, cat="fetch", id=command.fetch, args=args)

    def _end_fetch(self, event: FetchEnded) -> None:
        fetch = self._fetches.pop(event.fetch, None)
        if fetch is not None:
            name, args = f"{fetch.dataset}/{fetch.path}", {"error": event.error} if event.error else {}
            self._events.add("e", self._prefetches(), 0, name, cat="fetch", id=event.fetch, args=args)

    def _prefetches(self) -> int:
        return self._events.process("prefetches")

    # --- counters ---------------------------------------------------------------------------------------

    def _flow_thread(self, flow: FlowKey) -> int:
        thread = self._flows.setdefault(flow, len(self._flows) + 1)
        self._events.name_thread(self._queues, thread, "/".join(flow))
        return thread

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        self._events.add("C", self._queues, 0, "waiting calls", args={"calls": self._waiting})

    def _set_running(self, sandbox: _TracedSandbox, *, runs: bool) -> None:
        if sandbox.runs is not runs:
            sandbox.runs, process = runs, sandbox.process
            running = self._running[process] = self._running.get(process, 0) + (1 if runs else -1)
            self._events.add("C", process, 0, "busy sandboxes", args={"sandboxes": running})


def _why(command: StopSandbox | UnloadMemory) -> dict[str, Any]:
    return {"reason": command.reason} | ({"room for": command.room_for} if command.room_for else {})


def _placed(dispatch: Dispatch | None) -> dict[str, Any]:
    return {} if dispatch is None else {"start": dispatch.start, "reason": dispatch.reason}
