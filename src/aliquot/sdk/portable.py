"""Pickles for arguments and results: protocol 5, large buffers uncopied, and the app's own classes by the app's name.

The module that defines an app is called `__main__` in one process, `vision` in another, and has yet another name in the
sandbox. So a pickle refers to its classes and functions by the app's name, not by the module's name.
"""

import pickle
import sys
from io import BytesIO
from types import FunctionType
from typing import Any

from aliquot.runtime import values
from aliquot.sdk.errors import UsageError
from aliquot.sdk.wire import BodyPieces

# The modules of apps by the apps' names. An app registers itself when it is made, here and in the sandbox.
registered: dict[str, dict[str, Any]] = {}
# The name of a module that is run, not imported, on either side.
_MAIN = "__main__"


def register(app: str, module: dict[str, Any]) -> None:
    """Register the module of an app. A module that is loaded again replaces itself."""
    registered[app] = module


def locate(app: str, name: str) -> Any:  # noqa: ANN401 - a class or a function of the user's
    """Return an object of the app's module by its name. Pickles call this."""
    module = registered.get(app)
    if module is None:
        raise LookupError(f"the app {app!r} is not loaded in this process")
    first, *rest = name.split(".")
    try:
        found = module[first]
        for part in rest:
            found = getattr(found, part)
    except (KeyError, AttributeError):
        raise LookupError(f"the module of the app {app!r} has no {name!r}; is another version deployed?") from None
    return found


class _Pieces:
    """A file for the pickler that keeps the pieces it gets. Large buffers are not copied."""

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes or any buffer
        view = memoryview(data).cast("B")
        self.pieces.append(view)
        return len(view)


class _Pickler(pickle.Pickler):
    def __init__(self, file: _Pieces, app: str, large: values.LargeBuffers | None = None) -> None:
        super().__init__(file, protocol=5, buffer_callback=large)
        self._app = app
        self._module = registered.get(app, {}).get("__name__")

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - pickle's own signature
        if isinstance(value, type | FunctionType) and value.__module__ == self._module:
            return locate, (self._app, value.__qualname__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes | memoryview, app: str, buffers: list[memoryview]) -> None:
        super().__init__(BytesIO(data), buffers=buffers)
        self._app = app

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own signature
        if module == _MAIN or module not in sys.modules:
            try:
                return locate(self._app, name)
            except LookupError:
                pass  # it belongs to another module
        return super().find_class(module, name)


def dump(value: object, app: str) -> bytes | BodyPieces:
    """Pickle a value. Large buffers are not copied until they are sent, so they must not change meanwhile."""
    pieces = _pickled(value, app, None)
    if len(pieces) == 1:
        return bytes(pieces[0])
    return BodyPieces(pieces)


def dump_whole(value: object, app: str) -> bytes:
    """Pickle a value into one piece."""
    return b"".join(_pickled(value, app, None))


def dump_out_of_band(value: object, app: str) -> tuple[bytes, list[memoryview]]:
    """Pickle a value. Return the pickle and the large buffers that are not in it, uncopied."""
    large = values.LargeBuffers()
    pieces = _pickled(values.wrap_large_bytes(value), app, large)
    return b"".join(pieces), large.views


def _pickled(value: object, app: str, large: values.LargeBuffers | None) -> list[memoryview]:
    file = _Pieces()
    try:
        _Pickler(file, app, large).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(f"an argument cannot be sent to the platform: {error}; it takes what pickle takes") from error
    return file.pieces


def load(data: bytes, app: str, memory: Any = None) -> Any:  # noqa: ANN401 - whatever was sent
    """Load a pickle from the caller's own functions. Like every unpickling it may run code.

    `memory` has the buffers that are not in the pickle, if they came in a shared buffer.
    """

    def unpickle(pickled: bytes | memoryview, *, buffers: list[memoryview]) -> Any:  # noqa: ANN401 - likewise
        return _Unpickler(pickled, app, buffers).load()

    if not values.is_envelope(data):
        return unpickle(data, buffers=[])
    pickled, sizes, behind = values.open_envelope(data)
    return values.load(pickled, sizes, values.copy_buffers(sizes, behind) if memory is None else memory, unpickle)
