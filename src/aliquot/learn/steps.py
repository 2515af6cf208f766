"""Sessions as predictors see them: opened files, and marks for the beginning, calls and users."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

OPEN, CALL, BEGIN, USER = "open", "call", "begin", "user"
MARKS = (CALL, BEGIN, USER)  # steps that are not files: part of the history, never fetched
WINDOW = 10  # number of steps that a prediction uses


class AccessStep(NamedTuple):
    """One step of a session: an opened file, or a mark."""

    file: str  # `dataset/path`, or the name of a mark
    size: int = 0
    operation: str = OPEN

    @property
    def is_mark(self) -> bool:
        return self.operation in MARKS


Session: TypeAlias = list[AccessStep]
History: TypeAlias = Sequence[AccessStep]  # oldest first


def begin(tenant: str) -> AccessStep:
    """Return the mark of the beginning of a tenant's session."""
    return AccessStep(f"begin:{tenant}", 0, BEGIN)


def call(tenant: str, function: str) -> AccessStep:
    """Return the mark of a function call."""
    return AccessStep(f"call:{tenant}/{function}", 0, CALL)


def begin_marks(tenant: str, user: str) -> Session:
    """Return the mark of a session's beginning, and its user's mark if one is known.

    Names of tenants have no slash, so the two cannot be confused.
    """
    mark = begin(tenant)
    return [mark, AccessStep(f"{mark.file}/{user}", 0, USER)] if user else [mark]


def call_marks(tenant: str, function: str, user: str) -> Session:
    """Return the mark of a call, and its user's mark if one is known. Names of functions have no colon."""
    mark = call(tenant, function)
    return [mark, AccessStep(f"{mark.file}:{user}", 0, USER)] if user else [mark]


def seen_until(session: Session, position: int) -> Session:
    """Return the last steps before a position, preceded by the marks that they are under."""
    window = session[max(0, position - WINDOW) : position]
    marks = [] if any(step.is_mark for step in window) else marks_of(session[: max(0, position - WINDOW)])
    return [*marks, *window]


def marks_of(history: History) -> Session:
    """Return the marks that the last step is under: a call or beginning, and its user's mark."""
    for position in range(len(history) - 1, -1, -1):
        if history[position].is_mark:
            return marks_after([history[position - 1]] if position else [], history[position])
    return []


def marks_after(marks: Session, mark: AccessStep) -> Session:
    """Return the marks for the steps after `mark`, given the marks of the steps before it."""
    return [mark] if mark.operation != USER else [*(one for one in marks if one.operation in {CALL, BEGIN}), mark]
