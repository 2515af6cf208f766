"""A whole call that is more than one run: frames within frames, of which the innermost is at work.

Events go in (`begin`, `returned`, `lost`), commands come out: at most one `Run`, after the `Close` of every frame that
has ended. The `Close` of the outermost frame is the last command there will be. Time and ids are given from outside.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.sequences import payloads, texts
from aliquot.live.invocations.sequences.frames import (
    Budget,
    Conductor,
    Count,
    End,
    Ending,
    Frame,
    GoesOn,
    Handed,
    Next,
    Resolve,
    Sequence,
    Step,
)
from aliquot.live.node.base import Status

MOST = 50  # components; twice as many and one more of a conductor's own turns


class Run(Struct, frozen=True, gc=False):
    """Run this single action; then `returned` or `lost`."""

    id: str
    resolved: ResolvedAction
    payload: bytes
    cause: str
    handed: Handed | None = None  # instead of the payload
    hands_on: bool = False
    then: tuple[
        tuple[str, ResolvedAction], ...
    ] = ()  # and these after it in its sandbox: `returned` for each, as it ends


class Close(Struct, frozen=True, gc=False):
    """The frame has ended: record it."""

    frame: Frame
    status: Status
    result: bytes


Command: TypeAlias = Run | Close


class Machine:
    def __init__(self, resolve: Resolve, new_id: Callable[[], str], *, most: int = MOST) -> None:
        self._resolve = resolve
        self._new_id = new_id
        self._most = most
        self._stack: list[Frame] = []

    @property
    def has_ended(self) -> bool:
        return not self._stack

    def has(self, frame_id: str) -> bool:
        """Whether a frame of this id is open."""
        return any(frame.id == frame_id for frame in self._stack)

    def begin(
        self, call_id: str, resolved: ResolvedAction, payload: bytes, *, cause: str, now_ms: int
    ) -> list[Command]:
        frame = self.open(call_id, resolved, cause, now_ms)
        return self._go(frame.begin(payload), now_ms)

    def returned(self, ending: Ending, now_ms: int) -> list[Command]:
        """The component that runs has ended."""
        return self._go(self._stack[-1].returned(ending), now_ms)

    def lost(self, reason: str, now_ms: int) -> list[Command]:
        """The component was not taken: there is no record of it."""
        return self._go(End(Status.INTERNAL_ERROR, payloads.error(reason)), now_ms)

    def abort(self, reason: str) -> list[Command]:
        """Close everything at once."""
        closes: list[Command] = []
        while self._stack:
            closes.append(Close(self._stack.pop(), Status.INTERNAL_ERROR, payloads.error(reason)))
        return closes

    def cancel(self, frame_id: str) -> None:
        """When the component that runs has ended, this frame ends, with all within it."""
        inner = False
        for frame in self._stack:
            inner = inner or frame.id == frame_id
            frame.cancelled |= inner

    def _go(self, step: Step, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        while True:
            frame = self._stack[-1]
            if isinstance(step, End):
                self._stack.pop()
                commands.append(Close(frame, step.status, step.result))
                if not self._stack:
                    return commands
                figures = (frame.duration_ms, frame.memory_mb, frame.wait_ms)
                step = self._stack[-1].returned(Ending(frame.id, step.status, step.result, *figures))
            elif isinstance(step, GoesOn):
                return commands
            elif step.itself or not step.resolved.composite:
                then = tuple((self._new_id(), resolved) for resolved in step.then)
                commands.append(
                    Run(self._new_id(), step.resolved, step.payload, frame.id, step.handed, step.hands_on, then)
                )
                return commands
            else:
                step = self._enter(step, frame.id, now_ms)

    def _enter(self, step: Next, cause: str, now_ms: int) -> Step:
        # Counting bounds all but sequences that hold each other without end, which cannot be made in one write.
        if len(self._stack) > 3 * self._most:
            return End(Status.APPLICATION_ERROR, payloads.error(texts.SEQUENCE_TOO_LONG))
        return self.open(self._new_id(), step.resolved, cause, now_ms).begin(step.payload)

    def open(self, frame_id: str, resolved: ResolvedAction, cause: str, now_ms: int) -> Frame:
        """A frame within those that are open; nothing of it runs yet."""
        about = self._stack[-1] if self._stack else None
        frame: Frame
        if resolved.is_sequence:
            count = about.count if isinstance(about, Sequence) else Count()
            frame = Sequence(frame_id, resolved, cause, now_ms, resolve=self._resolve, count=count, most=self._most)
        else:
            budget = next((one.budget for one in reversed(self._stack) if isinstance(one, Conductor)), None) or Budget()
            frame = Conductor(frame_id, resolved, cause, now_ms, resolve=self._resolve, budget=budget, most=self._most)
        self._stack.append(frame)
        return frame
