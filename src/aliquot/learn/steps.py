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
