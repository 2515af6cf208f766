"""The sandboxes of the index: what each did over time, and why a function had no warm one."""

from collections import defaultdict, deque
from enum import StrEnum
from typing import NamedTuple

from aliquot.core.model import FlowKey

MAX_SLICES = 60_000
NO_PLACE: tuple[FlowKey, tuple[str, ...]] = (FlowKey("", ""), ())


class Activity(StrEnum):
    """The state of a sandbox during a slice."""

    START = "start"
    LOAD = "load"
    RUN = "run"


class SandboxSlice(NamedTuple):
    """A time in which a sandbox started, was loaded or ran a call."""

    begin: float  # epoch seconds
    end: float | None  # None while it goes on
    sandbox: int
    flow: FlowKey
    devices: tuple[str, ...]
    activity: Activity
    call: str


class IndexedSandbox:
    """A sandbox that is there."""

    __slots__ = ("activity", "begin", "call", "devices", "finished", "flow", "number")

    def __init__(self, number: int, flow: FlowKey, devices: tuple[str, ...]) -> None:
        self.number = number
        self.flow = flow
        self.devices = devices
        self.activity: Activity | None = None
        self.begin = 0.0
        self.call = ""
        self.finished: float | None = None  # the end of its last run


class SandboxTable:
    """The sandboxes that are there, and the newest slices of all."""

    def __init__(self, max_slices: int = MAX_SLICES) -> None:
        self._sandboxes: dict[int, IndexedSandbox] = {}
        self._by_flow: defaultdict[FlowKey, set[int]] = defaultdict(set)
        self._ends: dict[FlowKey, str] = {}  # why the last sandbox of a function ended or was swapped out
        self.slices: deque[SandboxSlice] = deque(maxlen=max_slices)

    def get(self, number: int) -> IndexedSandbox | None:
        return self._sandboxes.get(number)

    def place_of(self, number: int) -> tuple[FlowKey, tuple[str, ...]]:
        """Return the function and the devices of a sandbox."""
        sandbox = self._sandboxes.get(number)
        return NO_PLACE if sandbox is None else (sandbox.flow, sandbox.devices)

    def add(self, number: int, flow: FlowKey, devices: tuple[str, ...]) -> None:
        self._sandboxes[number] = IndexedSandbox(number, flow, devices)
        self._by_flow[flow].add(number)

    def begin(self, number: int, activity: Activity, at: float, call: str = "") -> None:
        """Begin a slice of a sandbox, and end the one before."""
        sandbox = self._sandboxes.get(number)
        if sandbox is not None:
            self._close(sandbox, at)
            sandbox.activity, sandbox.begin, sandbox.call = activity, at, call

    def end(self, number: int, at: float) -> None:
        sandbox = self._sandboxes.get(number)
        if sandbox is not None:
            self._close(sandbox, at)

    def add_slice(self, number: int, begin: float, end: float, call: str) -> None:
        """Add a run that was not seen to begin, because it was handed ahead."""
        sandbox = self._sandboxes.get(number)
        if sandbox is not None:
            self.slices.append(SandboxSlice(begin, end, number, sandbox.flow, sandbox.devices, Activity.RUN, call))

    def note(self, number: int, reason: str) -> None:
        """Note why a sandbox is no longer warm."""
        sandbox = self._sandboxes.get(number)
        if sandbox is not None:
            self._ends[sandbox.flow] = reason

    def remove(self, number: int, at: float, reason: str) -> None:
        self.note(number, reason)
        self.end(number, at)
        sandbox = self._sandboxes.pop(number, None)
        if sandbox is not None:
            numbers = self._by_flow[sandbox.flow]
            numbers.discard(number)
            if not numbers:
                del self._by_flow[sandbox.flow]

    def clear(self, at: float) -> None:
        """Remove all sandboxes, because the server has begun anew."""
        for number in list(self._sandboxes):
            self.remove(number, at, "the server was restarted")

    def why_swapped_out(self, flow: FlowKey) -> str:
        """Return why the memory of the function's sandbox was not on its device."""
        return self._ends.get(flow, "its memory was not on the device")

    def why_not_there(self, flow: FlowKey, number: int) -> str:
        """Return why the function had no idle sandbox, and got this new one."""
        others = self._by_flow.get(flow, set()) - {number}
        if any(self._sandboxes[other].activity is not None for other in others):
            return "its other sandboxes were busy or starting"
        return self._ends.get(flow, "its function had no sandbox before")

    def open_slices(self) -> list[SandboxSlice]:
        """Return the slices that go on."""
        return [
            SandboxSlice(each.begin, None, each.number, each.flow, each.devices, each.activity, each.call)
            for each in self._sandboxes.values()
            if each.activity is not None
        ]

    def _close(self, sandbox: IndexedSandbox, at: float) -> None:
        if sandbox.activity is not None:
            self.slices.append(
                SandboxSlice(
                    sandbox.begin, at, sandbox.number, sandbox.flow, sandbox.devices, sandbox.activity, sandbox.call
                )
            )
            sandbox.activity = None
