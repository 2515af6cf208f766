"""What a view tells of, and to whom."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from aliquot.storage.records import FileKey, Found


class FileOpened(Struct, frozen=True):
    """A sandbox has opened a file, or could not."""

    sandbox: int
    key: FileKey
    size: int
    waited_s: float  # for it, and for what was in its dataset where that was not known yet
    found: Found | None  # None: it could not be opened
    error: str = ""  # for people: why not. The sandbox sees an errno alone


class PieceWaited(Struct, frozen=True):
    """A sandbox has waited for a part of a file that it had open before all of it was here."""

    sandbox: int
    key: FileKey
    waited_s: float


# Called on the views' own thread, before the sandbox has its answer: what takes long belongs elsewhere.
OnViewEvent: TypeAlias = Callable[[FileOpened | PieceWaited], None]
# Has something done on the views' own thread; from any other.
PostWork: TypeAlias = Callable[[Callable[[], None]], None]
