"""The events that views report, and the types of their callbacks."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from aliquot.storage.records import FileKey, Found


class FileOpened(Struct, frozen=True):
    """A sandbox has opened a file, or failed to."""

    sandbox: int
    key: FileKey
    size: int
    waited_s: float  # for the file, and for its dataset's listing if that was missing
    found: Found | None  # None: the open failed
    error: str = ""  # the reason for people; the sandbox sees only an errno


class PieceWaited(Struct, frozen=True):
    """A sandbox has waited for a part of a file that it opened before its transfer ended."""

    sandbox: int
    key: FileKey
    waited_s: float


# Called on the views' thread before the sandbox gets its answer, so it must be quick.
OnViewEvent: TypeAlias = Callable[[FileOpened | PieceWaited], None]
# Runs a function on the views' thread. Called from any thread.
PostWork: TypeAlias = Callable[[Callable[[], None]], None]
