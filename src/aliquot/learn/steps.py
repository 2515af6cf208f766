"""What a session is made of, as predictors see it: files that are opened, and the calls and beginnings between them."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

OPEN, CALL, BEGIN = "open", "call", "begin"
MARKS = (CALL, BEGIN)  # steps that are no files: history to learn from, never to be fetched
WINDOW = 10  # steps that a prediction looks back; k in the seed


class Step(NamedTuple):
    file: str  # `dataset/path`; of a mark, what names it
    size: int = 0
    operation: str = OPEN

    @property
    def is_mark(self) -> bool:
        return self.operation in MARKS


Session: TypeAlias = list[Step]
History: TypeAlias = Sequence[Step]  # the oldest first


def begin(tenant: str) -> Step:
    return Step(f"begin:{tenant}", 0, BEGIN)


def call(tenant: str, function: str) -> Step:
    return Step(f"call:{tenant}/{function}", 0, CALL)


def seen_until(session: Session, place: int) -> Session:
    """The last steps before a place, and the mark that they stand under, however far back."""
    window = session[max(0, place - WINDOW) : place]
    mark = None if any(step.is_mark for step in window) else mark_of(session[: max(0, place - WINDOW)])
    return window if mark is None else [mark, *window]


def mark_of(history: History) -> Step | None:
    """The call, or the beginning, that the last step stands under."""
    return next((step for step in reversed(history) if step.is_mark), None)
