"""What a session is made of, as predictors see it: files that are opened, and the calls and beginnings between them."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

OPEN, CALL, BEGIN, USER = "open", "call", "begin", "user"
MARKS = (CALL, BEGIN, USER)  # steps that are no files: history to learn from, never to be fetched
WINDOW = 10  # steps that a prediction looks back; k in the seed


class AccessStep(NamedTuple):
    file: str  # `dataset/path`; of a mark, what names it
    size: int = 0
    operation: str = OPEN

    @property
    def is_mark(self) -> bool:
        return self.operation in MARKS


Session: TypeAlias = list[AccessStep]
History: TypeAlias = Sequence[AccessStep]  # the oldest first


def begin(tenant: str) -> AccessStep:
    return AccessStep(f"begin:{tenant}", 0, BEGIN)


def call(tenant: str, function: str) -> AccessStep:
    return AccessStep(f"call:{tenant}/{function}", 0, CALL)


def begin_marks(tenant: str, user: str) -> Session:
    """The tenant's, then its user's own, if one is known. A tenant's name has no slash."""
    mark = begin(tenant)
    return [mark, AccessStep(f"{mark.file}/{user}", 0, USER)] if user else [mark]


def call_marks(tenant: str, function: str, user: str) -> Session:
    """As above. A function's name has no colon."""
    mark = call(tenant, function)
    return [mark, AccessStep(f"{mark.file}:{user}", 0, USER)] if user else [mark]


def seen_until(session: Session, place: int) -> Session:
    """The last steps before a place, and the marks that they stand under, however far back."""
    window = session[max(0, place - WINDOW) : place]
    marks = [] if any(step.is_mark for step in window) else marks_of(session[: max(0, place - WINDOW)])
    return [*marks, *window]


def marks_of(history: History) -> Session:
    """The call, or the beginning, that the last step stands under; where it is a user's, anybody's before it."""
    for place in range(len(history) - 1, -1, -1):
        if history[place].is_mark:
            return under([history[place - 1]] if place else [], history[place])
    return []


def under(marks: Session, mark: AccessStep) -> Session:
    """What the steps after a mark stand under, where those before it stood under `marks`."""
    return [mark] if mark.operation != USER else [*(one for one in marks if one.operation in {CALL, BEGIN}), mark]
