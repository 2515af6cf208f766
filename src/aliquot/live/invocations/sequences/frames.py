"""Frames: one running sequence or conductor each, as a state machine.

A frame takes the end of its component and returns the next step. It does not know the frames outside it. Frames share
two counters: `ActionCounter` counts the single actions of nested sequences, `CompositionBudget` bounds conductors and
everything that they call.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.sequences import payloads, texts
from aliquot.live.node.base import BufferHandle, Status
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import KERNEL, FullName

Resolve: TypeAlias = Callable[[FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`


class PickledResult(Struct, frozen=True, gc=False):
    """A pickled result that JSON cannot represent. Only the next component receives it."""

    pickled: bytes | memoryview
    shared_buffer: BufferHandle | None


class RunComponent(Struct, frozen=True, gc=False):
    """Run this action on this payload."""

    resolved: ResolvedAction
    payload: bytes
    itself: bool = False  # the conductor itself runs, not a nested composition
    chained: tuple[ResolvedAction, ...] = ()  # follow in the same sandbox, each on the result of the previous one
    handed: PickledResult | None = None  # instead of the payload
    hands_on: bool = False  # the next component takes a pickled result


class FrameEnd(Struct, frozen=True, gc=False):
    """End the frame with this result."""

    status: Status
    result: bytes
    handed: PickledResult | None = None  # for the next component, if there is one


class AlreadyRunning(Struct, frozen=True, gc=False):
    """Wait: the next component already runs in the same sandbox."""


FrameStep: TypeAlias = RunComponent | FrameEnd | AlreadyRunning


class ComponentEnd(Struct, frozen=True, gc=False):
    """The end of a component, which is a single action or a composition."""

    id: str
    status: Status
    result: bytes
    duration_ms: int
    memory_mb: int | None
    wait_ms: int
    handed: PickledResult | None = None


class ActionCounter:
    """Counts the single actions of a sequence and of the sequences inside it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class CompositionBudget:
    """Counts the components and conductor runs of a conductor and of those that it calls."""

    __slots__ = ("components", "conductors")

    def __init__(self) -> None:
        self.components = 0
        self.conductors = 0


class Frame(ABC):
    """The common part of sequences and conductors: identity, and the values for the record."""

    def __init__(self, frame_id: str, resolved: ResolvedAction, cause: str, start_ms: int) -> None:
        self.id = frame_id
        self.resolved = resolved
        self.cause = cause
        self.start_ms = start_ms
        self.wait_ms = 0
        self.duration_ms = 0
        self.memory_mb: int | None = None
        self.components: list[str] = []  # ids of the components that have run, in order
        self.cancelled = False

    @abstractmethod
    def begin(self, payload: bytes) -> FrameStep:
        """Return what runs first."""

    def returned(self, ending: ComponentEnd) -> FrameStep:
        """Take the end of a component and return what runs next."""
        if not self.components:
            self.wait_ms = ending.wait_ms
        self.components.append(ending.id)
        self.duration_ms += ending.duration_ms
        if ending.memory_mb is not None:
            self.memory_mb = max(self.memory_mb or 0, ending.memory_mb)
        return self._cancelled(ending) if self.cancelled else self.follow(ending)

    def _cancelled(self, ending: ComponentEnd) -> FrameStep:
        """End a cancelled frame as its component ended. A component that succeeded does not make the frame succeed."""
        if ending.status is not Status.SUCCESS:
            return FrameEnd(ending.status, ending.result)
        step = self.follow(ending)
        return step if isinstance(step, FrameEnd) else FrameEnd(Status.INTERNAL_ERROR, payloads.error(texts.CANCELLED))

    @abstractmethod
    def follow(self, ending: ComponentEnd) -> FrameStep:
        """Return what runs after a component of a frame that was not cancelled."""


class SequenceFrame(Frame):
    """A running sequence: its components one after the other, each on the result of the previous one."""

    def __init__(
        self,
        frame_id: str,
        resolved: ResolvedAction,
        cause: str,
        start_ms: int,
        *,
        resolve: Resolve,
        count: ActionCounter,
        max_components: int,
    ) -> None:
        super().__init__(frame_id, resolved, cause, start_ms)
        self._resolve = resolve
        self._count = count
        self._max_components = max_components
        self._remaining = deque(resolved.action.exec.components)
        self._following = 0  # components that already run in the sandbox of the previous one

    @property
    def count(self) -> ActionCounter:
        return self._count

    def begin(self, payload: bytes) -> FrameStep:
        """Start the first component on the payload. The sequence's own parameters are not merged."""
        return self._next(FrameEnd(Status.SUCCESS, payload))

    def follow(self, ending: ComponentEnd) -> FrameStep:
        last = FrameEnd(ending.status, ending.result, ending.handed)
        if ending.status is not Status.SUCCESS:
            return last
        if self._following:
            self._following -= 1
            return AlreadyRunning()
        return self._next(last)

    def following(self) -> ResolvedAction | None:
        """Return the next component, if there is one and it is a single action."""
        if not self._remaining:
            return None
        try:
            resolved = self._resolve(self._remaining[0])
        except (NotFoundError, AccessDeniedError):
            return None
        return None if resolved.composite or resolved.workflow else resolved

    def _next(self, so_far: FrameEnd) -> FrameStep:
        if not self._remaining:
            return so_far
        name = self._remaining.popleft()
        if self._count.value >= self._max_components:
            return _refused(texts.SEQUENCE_TOO_LONG)
        try:
            resolved = self._resolve(name)
        except (NotFoundError, AccessDeniedError):  # it existed when the sequence was created
            return _refused(texts.SEQUENCE_COMPONENT_MISSING)
        if so_far.handed is not None and not _takes_pickles(
            resolved
        ):  # it took pickles when the previous component began
            return _refused(texts.NOT_JSON_BETWEEN)
        if resolved.is_sequence:
            return RunComponent(resolved, so_far.result)
        self._count.value += 1
        chained = self._chain(resolved)
        hands_on = self._hands_on(chained[-1] if chained else resolved)
        payload = payloads.with_defaults(resolved.action, so_far.result)
        return RunComponent(resolved, payload, chained=chained, handed=so_far.handed, hands_on=hands_on)

    def _hands_on(self, resolved: ResolvedAction) -> bool:
        """Return whether this action and the next one are both SDK functions or both kernel graphs."""
        if not self._remaining or not (_takes_pickles(resolved) or _is_graph(resolved)):
            return False
        try:
            following = self._resolve(self._remaining[0])
            return _takes_pickles(following) if _takes_pickles(resolved) else _is_graph(following)
        except (NotFoundError, AccessDeniedError):  # reported when its turn comes
            return False

    def _chain(self, first: ResolvedAction) -> tuple[ResolvedAction, ...]:
        """Take the next components of the same group. They run in the same sandbox, so results need not leave it."""
        chain: list[ResolvedAction] = []
        while self._remaining and first.group and not first.composite and self._count.value < self._max_components:
            try:
                resolved = self._resolve(self._remaining[0])
            except (NotFoundError, AccessDeniedError):  # reported when its turn comes
                break
            if resolved.composite or (resolved.tenant, resolved.group) != (first.tenant, first.group):
                break
            self._remaining.popleft()
            self._count.value += 1
            chain.append(resolved)
        self._following = len(chain)
        return tuple(chain)


def _is_graph(resolved: ResolvedAction) -> bool:
    return resolved.action.exec.kind == KERNEL


class ConductorFrame(Frame):
    """A running conductor: its action runs after every component and names the next one."""

    def __init__(
        self,
        frame_id: str,
        resolved: ResolvedAction,
        cause: str,
        start_ms: int,
        *,
        resolve: Resolve,
        budget: CompositionBudget,
        max_components: int,
    ) -> None:
        super().__init__(frame_id, resolved, cause, start_ms)
        self.memory_mb = resolved.action.limits.memory
        self._resolve = resolve
        self._budget = budget
        self._max_components = max_components
        self._state: bytes | None = None
        self._conducting = False  # whether the conductor itself runs now

    @property
    def budget(self) -> CompositionBudget:
        return self._budget

    def begin(self, payload: bytes) -> FrameStep:
        return self._conduct(payload)

    def follow(self, ending: ComponentEnd) -> FrameStep:
        if not self._conducting:
            return self._conduct(payloads.boxed(ending.result))
        self._conducting = False
        answer = payloads.answer_of(ending.result)
        self._state = payloads.boxed(answer.state, "state") if answer.state else None
        params = payloads.boxed(answer.params) if answer.params else None
        if not answer.action:
            return FrameEnd(ending.status, ending.result if params is None else params)
        name = payloads.component_name(answer.action, self.resolved.tenant)
        if name is None:
            return self._object(texts.NOT_A_NAME, payloads.shown(answer.action))
        if self._budget.components >= self._max_components:
            return self._object(texts.COMPOSITION_TOO_LONG)
        return self._call(name, params or payloads.EMPTY)

    def _conduct(self, payload: bytes) -> FrameStep:
        if self._budget.conductors > 2 * self._max_components:
            return _refused(texts.COMPOSITION_TOO_LONG)
        self._budget.conductors += 1
        self._conducting = True
        if self._state is not None:
            payload = payloads.with_state(payload, self._state)
        return RunComponent(self.resolved, payloads.with_defaults(self.resolved.action, payload), itself=True)

    def _call(self, name: FullName, params: bytes) -> FrameStep:
        shown = str(name)[1:]
        try:
            resolved = self._resolve(name)
        except AccessDeniedError:
            return self._object(texts.NOT_ENTITLED, shown)
        except NotFoundError:
            return self._object(texts.NOT_FOUND, shown)
        if resolved.is_sequence:
            self._budget.components += 1
            return RunComponent(resolved, params)
        if not resolved.composite:  # the runs of another conductor are counted as they begin
            self._budget.components += 1
        return RunComponent(resolved, payloads.with_defaults(resolved.action, params))

    def _object(self, text: str, *about: str) -> FrameStep:
        """Tell the conductor what was wrong with its answer. It may ask for something else."""
        return self._conduct(payloads.error(text.format(*about)))


def _takes_pickles(resolved: ResolvedAction) -> bool:
    return resolved.has_code and not resolved.composite and resolved.action.annotation("sdk") is True


def _refused(text: str) -> FrameEnd:
    return FrameEnd(Status.APPLICATION_ERROR, payloads.error(text))
