"""The state machine of a composition: nested frames, with a component running in the innermost.

Events go in (`begin`, `returned`, `lost`) and commands come out: a `CloseFrame` for every frame that has ended, then at
most one `RunAction`. The last command of all is the `CloseFrame` of the outermost frame. Time and ids are arguments.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.sequences import payloads, texts
from aliquot.live.invocations.sequences.frames import (
    ActionCounter,
    AlreadyRunning,
    ComponentEnd,
    CompositionBudget,
    ConductorFrame,
    Frame,
    FrameEnd,
    FrameStep,
    PickledResult,
    Resolve,
    RunComponent,
    SequenceFrame,
)
from aliquot.live.node.base import Status

MAX_COMPONENTS = 50  # of a composition; a conductor itself may run twice as often, plus once


class RunAction(Struct, frozen=True, gc=False):
    """Run this single action. The answer is `returned` or `lost`."""

    id: str
    resolved: ResolvedAction
    payload: bytes
    cause: str
    handed: PickledResult | None = None  # instead of the payload
    hands_on: bool = False
    # Actions that follow in the same sandbox, each with its id. `returned` comes for each of them.
    chained: tuple[tuple[str, ResolvedAction], ...] = ()


class CloseFrame(Struct, frozen=True, gc=False):
    """Record a frame that has ended."""

    frame: Frame
    status: Status
    result: bytes


Command: TypeAlias = RunAction | CloseFrame


class CompositionMachine:
    """Decides what a composition runs next. It performs nothing itself."""

    def __init__(self, resolve: Resolve, new_id: Callable[[], str], *, max_components: int = MAX_COMPONENTS) -> None:
        self._resolve = resolve
        self._new_id = new_id
        self._max_components = max_components
        self._stack: list[Frame] = []

    @property
    def has_ended(self) -> bool:
        return not self._stack

    def has(self, frame_id: str) -> bool:
        """Return whether a frame of this id is open."""
        return any(frame.id == frame_id for frame in self._stack)

    def following(self) -> ResolvedAction | None:
        """Return the component that runs after the current one, if it is known and a single action."""
        frame = self._stack[-1] if self._stack else None
        return frame.following() if isinstance(frame, SequenceFrame) else None

    def begin(
        self, call_id: str, resolved: ResolvedAction, payload: bytes, *, cause: str, now_ms: int
    ) -> list[Command]:
        frame = self.open(call_id, resolved, cause, now_ms)
        return self._advance(frame.begin(payload), now_ms)

    def returned(self, ending: ComponentEnd, now_ms: int) -> list[Command]:
        """Continue after the current component has ended."""
        return self._advance(self._stack[-1].returned(ending), now_ms)

    def lost(self, reason: str, now_ms: int) -> list[Command]:
        """End the composition because its component was refused and has no record."""
        return self._advance(FrameEnd(Status.INTERNAL_ERROR, payloads.error(reason)), now_ms)

    def abort(self, reason: str) -> list[Command]:
        """Close all frames at once."""
        closes: list[Command] = []
        while self._stack:
            closes.append(CloseFrame(self._stack.pop(), Status.INTERNAL_ERROR, payloads.error(reason)))
        return closes

    def cancel(self, frame_id: str) -> None:
        """End this frame, with all frames inside it, when the current component has ended."""
        inner = False
        for frame in self._stack:
            inner = inner or frame.id == frame_id
            frame.cancelled |= inner

    def _advance(self, step: FrameStep, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        while True:
            frame = self._stack[-1]
            if isinstance(step, FrameEnd):
                self._stack.pop()
                commands.append(CloseFrame(frame, step.status, step.result))
                if not self._stack:
                    return commands
                timing = (frame.duration_ms, frame.memory_mb, frame.wait_ms)
                step = self._stack[-1].returned(ComponentEnd(frame.id, step.status, step.result, *timing))
            elif isinstance(step, AlreadyRunning):
                return commands
            elif step.itself or not step.resolved.composite:
                chained = tuple((self._new_id(), resolved) for resolved in step.chained)
                commands.append(
                    RunAction(
                        self._new_id(), step.resolved, step.payload, frame.id, step.handed, step.hands_on, chained
                    )
                )
                return commands
            else:
                step = self._enter(step, frame.id, now_ms)

    def _enter(self, step: RunComponent, cause: str, now_ms: int) -> FrameStep:
        # The counters bound everything but sequences that contain each other, which take several writes to make.
        if len(self._stack) > 3 * self._max_components:
            return FrameEnd(Status.APPLICATION_ERROR, payloads.error(texts.SEQUENCE_TOO_LONG))
        return self.open(self._new_id(), step.resolved, cause, now_ms).begin(step.payload)

    def open(self, frame_id: str, resolved: ResolvedAction, cause: str, now_ms: int) -> Frame:
        """Open a frame inside the innermost one. Nothing of it runs yet."""
        parent = self._stack[-1] if self._stack else None
        frame: Frame
        if resolved.is_sequence:
            count = parent.count if isinstance(parent, SequenceFrame) else ActionCounter()
            frame = SequenceFrame(
                frame_id,
                resolved,
                cause,
                now_ms,
                resolve=self._resolve,
                count=count,
                max_components=self._max_components,
            )
        else:
            budget = (
                next((one.budget for one in reversed(self._stack) if isinstance(one, ConductorFrame)), None)
                or CompositionBudget()
            )
            frame = ConductorFrame(
                frame_id,
                resolved,
                cause,
                now_ms,
                resolve=self._resolve,
                budget=budget,
                max_components=self._max_components,
            )
        self._stack.append(frame)
        return frame
