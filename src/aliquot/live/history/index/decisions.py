"""The newest decisions of the scheduler: its commands with their reasons, and for whom they were made."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from aliquot.core.commands import (
    BreakPromise,
    CancelFetch,
    Command,
    Dispatch,
    Fail,
    Fetch,
    LoadMemory,
    Predict,
    Promise,
    Reject,
    SetSlice,
    StartSandbox,
    StopSandbox,
    UnloadMemory,
)
from aliquot.core.model import FlowKey

MAX_DECISIONS = 20_000
NO_FLOW = FlowKey("", "")


class Decision(NamedTuple):
    """A command of the scheduler."""

    at: float  # epoch seconds
    kind: str
    flow: FlowKey
    sandbox: int | None
    call: str
    devices: tuple[str, ...]
    reason: str
    room_for: FlowKey | None  # the function whose call needs the place


class DecisionLog:
    """Keeps the newest decisions. Commands that only carry out an earlier one, such as `Run`, are left out."""

    def __init__(
        self,
        flow_of_call: Callable[[str], FlowKey | None],
        sandbox_of: Callable[[int], tuple[FlowKey, tuple[str, ...]]],
        max_decisions: int = MAX_DECISIONS,
    ) -> None:
        """Take functions that tell the function of a call, and the function and devices of a sandbox."""
        self._flow_of_call = flow_of_call
        self._sandbox_of = sandbox_of
        self.newest: deque[Decision] = deque(maxlen=max_decisions)
        self.seen = 0  # decisions so far, with those that were forgotten
        self._describe: dict[type[Command], Callable[..., Decision]] = {
            Dispatch: self._of_dispatch,
            StartSandbox: self._of_start,
            LoadMemory: self._of_sandbox,
            UnloadMemory: self._of_sandbox,
            StopSandbox: self._of_sandbox,
            SetSlice: self._of_slice,
            Fail: self._of_call,
            Reject: self._of_call,
            Promise: self._of_call,
            BreakPromise: self._of_call,
            Predict: self._of_prefetch,
            Fetch: self._of_prefetch,
            CancelFetch: self._of_cancel,
        }

    def take(self, command: Command, at: float) -> None:
        """Take a command of a step at this time."""
        describe = self._describe.get(type(command))
        if describe is not None:
            self.newest.append(describe(command, at))
            self.seen += 1

    def _of_sandbox(self, command: Any, at: float) -> Decision:  # noqa: ANN401 - a command about a sandbox
        flow, devices = self._sandbox_of(command.sandbox)
        room_for = getattr(command, "room_for", None)
        needed = None if room_for is None else self._flow_of_call(room_for)
        return Decision(at, type(command).__name__, flow, command.sandbox, "", devices, command.reason, needed)

    def _of_slice(self, command: SetSlice, at: float) -> Decision:
        flow, devices = self._sandbox_of(command.sandbox)
        size = f"{command.share:.0%} of the device, at most {command.ceiling:.0%}"
        reason = f"{size}: {command.reason}" if command.reason else size
        return Decision(at, "SetSlice", flow, command.sandbox, "", devices, reason, None)

    def _of_start(self, command: StartSandbox, at: float) -> Decision:
        flow = FlowKey(command.tenant, command.function)
        reason = command.reason or f"for a {command.purpose}"
        return Decision(at, "StartSandbox", flow, command.sandbox, command.invocation, command.place, reason, None)

    def _of_dispatch(self, command: Dispatch, at: float) -> Decision:
        flow = self._flow_of_call(command.invocation) or NO_FLOW
        reason = f"{command.start.replace('_', ' ')}: {command.reason}"
        return Decision(at, "Dispatch", flow, command.sandbox, command.invocation, command.place, reason, None)

    def _of_call(self, command: Any, at: float) -> Decision:  # noqa: ANN401 - a command about a call
        flow = self._flow_of_call(command.invocation) or NO_FLOW
        return Decision(at, type(command).__name__, flow, None, command.invocation, (), command.reason, None)

    def _of_prefetch(self, command: Predict | Fetch, at: float) -> Decision:
        function = command.function if isinstance(command, Predict) else ""
        subject = f"{command.dataset}/{command.path}: " if isinstance(command, Fetch) else ""
        flow = FlowKey(command.tenant, function)
        return Decision(at, type(command).__name__, flow, None, "", (), subject + command.reason, None)

    def _of_cancel(self, command: CancelFetch, at: float) -> Decision:
        return Decision(at, "CancelFetch", NO_FLOW, None, "", (), f"fetch {command.fetch}: {command.reason}", None)
