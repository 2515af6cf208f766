"""One sequence or one conductor's composition under way, as a state machine: how a component ended in, what next out.

A frame knows nothing of those around it. Limits are counted in objects that frames share: a `Count` for the single
actions of nested sequences, a `Budget` for conductors and all that they call.
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
from aliquot.live.store.records import FullName

Resolve: TypeAlias = Callable[[FullName], ResolvedAction]  # raises `NotFoundError` and `AccessDeniedError`


class Handed(Struct, frozen=True, gc=False):
    """What a component returned that JSON cannot hold: a pickle, for the next one alone."""

    pickled: bytes | memoryview
    parcel: BufferHandle | None


class Next(Struct, frozen=True, gc=False):
    """Run this on that."""

    resolved: ResolvedAction
    payload: bytes
    itself: bool = False  # a conductor's own turn: not a composition within it
    then: tuple[ResolvedAction, ...] = ()  # these follow in the same sandbox, each on what the one before returned
    handed: Handed | None = None  # instead of the payload
    hands_on: bool = False  # what comes after it takes what JSON cannot hold


class End(Struct, frozen=True, gc=False):
    status: Status
    result: bytes
    handed: Handed | None = None  # for what comes next, if something does


class GoesOn(Struct, frozen=True, gc=False):
    """What follows runs already, in the same sandbox."""


Step: TypeAlias = Next | End | GoesOn


class Ending(Struct, frozen=True, gc=False):
    """How a component ended, be it a single action or a composition."""

    id: str
    status: Status
    result: bytes
    duration_ms: int
    memory_mb: int | None
    wait_ms: int
    handed: Handed | None = None


class Count:
    """Of single actions in a sequence and those within it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Budget:
    """What one conductor and those that it calls may use together."""

    __slots__ = ("components", "conductors")

    def __init__(self) -> None:
        self.components = 0
        self.conductors = 0


class Frame(ABC):
    """What the two kinds have in common: who it is, and what its record will say."""

    def __init__(self, frame_id: str, resolved: ResolvedAction, cause: str, start_ms: int) -> None:
        self.id = frame_id
        self.resolved = resolved
        self.cause = cause
        self.start_ms = start_ms
        self.wait_ms = 0
        self.duration_ms = 0
        self.memory_mb: int | None = None
        self.components: list[str] = []  # the ids of what has run, in order
        self.cancelled = False

    @abstractmethod
    def begin(self, payload: bytes) -> Step:
        """What runs first."""

    def returned(self, ending: Ending) -> Step:
        """One of its components has ended."""
        if not self.components:
            self.wait_ms = ending.wait_ms
        self.components.append(ending.id)
        self.duration_ms += ending.duration_ms
        if ending.memory_mb is not None:
            self.memory_mb = max(self.memory_mb or 0, ending.memory_mb)
        return self._cancelled(ending) if self.cancelled else self.follow(ending)

    def _cancelled(self, ending: Ending) -> Step:
        """What became of the component decides; but one that had succeeded already is not what the whole comes to."""
        if ending.status is not Status.SUCCESS:
            return End(ending.status, ending.result)
        step = self.follow(ending)
        return step if isinstance(step, End) else End(Status.INTERNAL_ERROR, payloads.error(texts.CANCELLED))

    @abstractmethod
    def follow(self, ending: Ending) -> Step:
        """What comes after a component, if nobody cancelled it."""


class Sequence(Frame):
    def __init__(
        self,
        frame_id: str,
        resolved: ResolvedAction,
        cause: str,
        start_ms: int,
        *,
        resolve: Resolve,
        count: Count,
        most: int,
    ) -> None:
        super().__init__(frame_id, resolved, cause, start_ms)
        self._resolve = resolve
        self._count = count
        self._most = most
        self._ahead = deque(resolved.action.exec.components)
        self._following = 0  # components that run in the sandbox of the one before them

    @property
    def count(self) -> Count:
        return self._count

    def begin(self, payload: bytes) -> Step:
        """The first component gets what the sequence was given: parameters of the sequence's own do not count."""
        return self._next(End(Status.SUCCESS, payload))

    def follow(self, ending: Ending) -> Step:
        last = End(ending.status, ending.result, ending.handed)
        if ending.status is not Status.SUCCESS:
            return last
        if self._following:
            self._following -= 1
            return GoesOn()
        return self._next(last)

    def _next(self, so_far: End) -> Step:
        if not self._ahead:
            return so_far
        name = self._ahead.popleft()
        if self._count.value >= self._most:
            return _refused(texts.SEQUENCE_TOO_LONG)
        try:
            resolved = self._resolve(name)
        except (NotFoundError, AccessDeniedError):  # it was there when the sequence was made
            return _refused(texts.SEQUENCE_COMPONENT_MISSING)
        if so_far.handed is not None and not _takes_pickles(resolved):  # it did when the one before it began
            return _refused(texts.NOT_JSON_BETWEEN)
        if resolved.is_sequence:
            return Next(resolved, so_far.result)
        self._count.value += 1
        then = self._chain(resolved)
        hands_on = self._hands_on(then[-1] if then else resolved)
        payload = payloads.with_defaults(resolved.action, so_far.result)
        return Next(resolved, payload, then=then, handed=so_far.handed, hands_on=hands_on)

    def _hands_on(self, resolved: ResolvedAction) -> bool:
        """Whether both it and what comes after it are of the SDK."""
        if not self._ahead or not _takes_pickles(resolved):
            return False
        try:
            return _takes_pickles(self._resolve(self._ahead[0]))
        except (NotFoundError, AccessDeniedError):  # told when it is its turn
            return False

    def _chain(self, first: ResolvedAction) -> tuple[ResolvedAction, ...]:
        """Those of its group that come next: they run in its sandbox, and its result need not leave it."""
        chain: list[ResolvedAction] = []
        while self._ahead and first.group and not first.composite and self._count.value < self._most:
            try:
                resolved = self._resolve(self._ahead[0])
            except (NotFoundError, AccessDeniedError):  # told when it is its turn
                break
            if resolved.composite or (resolved.tenant, resolved.group) != (first.tenant, first.group):
                break
            self._ahead.popleft()
            self._count.value += 1
            chain.append(resolved)
        self._following = len(chain)
        return tuple(chain)


class Conductor(Frame):
    def __init__(
        self,
        frame_id: str,
        resolved: ResolvedAction,
        cause: str,
        start_ms: int,
        *,
        resolve: Resolve,
        budget: Budget,
        most: int,
    ) -> None:
        super().__init__(frame_id, resolved, cause, start_ms)
        self.memory_mb = resolved.action.limits.memory
        self._resolve = resolve
        self._budget = budget
        self._most = most
        self._state: bytes | None = None
        self._conducting = False  # whether it is the conductor that runs

    @property
    def budget(self) -> Budget:
        return self._budget

    def begin(self, payload: bytes) -> Step:
        return self._conduct(payload)

    def follow(self, ending: Ending) -> Step:
        if not self._conducting:
            return self._conduct(payloads.boxed(ending.result))
        self._conducting = False
        answer = payloads.answer_of(ending.result)
        self._state = payloads.boxed(answer.state, "state") if answer.state else None
        params = payloads.boxed(answer.params) if answer.params else None
        if not answer.action:
            return End(ending.status, ending.result if params is None else params)
        name = payloads.component_name(answer.action, self.resolved.tenant)
        if name is None:
            return self._object(texts.NOT_A_NAME, payloads.shown(answer.action))
        if self._budget.components >= self._most:
            return self._object(texts.COMPOSITION_TOO_LONG)
        return self._call(name, params or payloads.EMPTY)

    def _conduct(self, payload: bytes) -> Step:
        if self._budget.conductors > 2 * self._most:
            return _refused(texts.COMPOSITION_TOO_LONG)
        self._budget.conductors += 1
        self._conducting = True
        if self._state is not None:
            payload = payloads.with_state(payload, self._state)
        return Next(self.resolved, payloads.with_defaults(self.resolved.action, payload), itself=True)

    def _call(self, name: FullName, params: bytes) -> Step:
        shown = str(name)[1:]
        try:
            resolved = self._resolve(name)
        except AccessDeniedError:
            return self._object(texts.NOT_ENTITLED, shown)
        except NotFoundError:
            return self._object(texts.NOT_FOUND, shown)
        if resolved.is_sequence:
            self._budget.components += 1
            return Next(resolved, params)
        if not resolved.composite:  # another conductor's turns are counted as they come
            self._budget.components += 1
        return Next(resolved, payloads.with_defaults(resolved.action, params))

    def _object(self, text: str, *about: str) -> Step:
        """The conductor hears of it and may do something else."""
        return self._conduct(payloads.error(text.format(*about)))


def _takes_pickles(resolved: ResolvedAction) -> bool:
    return not resolved.composite and resolved.action.annotation("sdk") is True


def _refused(text: str) -> End:
    return End(Status.APPLICATION_ERROR, payloads.error(text))
