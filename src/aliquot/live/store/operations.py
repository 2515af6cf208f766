"""What may stand in the line to the disk: things written behind, and things that someone waits for."""

from asyncio import Future
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from aliquot.live.store.records import Activation


class Kind(Enum):
    APPLY = auto()  # a list of `Change`s of documents
    ACCEPT = auto()  # (Accepted, …), and (Activation, …) of what set them off
    STARTED = auto()  # the id
    FINISH = auto()  # Activation
    BARRIER = auto()  # nothing of its own: all before it is durable


class Snapshot(Struct, frozen=True):
    """The first entry of a new journal segment."""

    body: bytes


class Durable:
    """A write that is awaited. It fails as a whole, and then it is never written."""

    __slots__ = ("future", "kind", "value")

    def __init__(self, kind: Kind, value: Any, future: "Future[None]") -> None:  # noqa: ANN401 - by kind
        self.kind = kind
        self.value = value
        self.future = future


Behind = Activation | bytes | Snapshot  # a record, a journal step, a new segment
Operation = Behind | Durable
