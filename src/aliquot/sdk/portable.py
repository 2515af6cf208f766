"""Arguments and results between processes: pickle 5, large buffers uncopied, and the app's own classes by app.

The module that defines an app is called `__main__` here, `vision` there and something else in the sandbox. So what it
defines travels as "that name in the app's module", not under the module's name of the day.
"""

import pickle
import sys
from io import BytesIO
from types import FunctionType
from typing import Any

from aliquot.runtime import values
from aliquot.sdk.errors import UsageError
from aliquot.sdk.wire import Body

# The app's module by the app's name; an app registers itself as it is made, here and in the sandbox.
registered: dict[str, dict[str, Any]] = {}
# What a module that is run rather than imported is called, on either side.
_MAIN = "__main__"


def register(app: str, module: dict[str, Any]) -> None:
    """The latest counts: a module that is loaded again replaces itself."""
    registered[app] = module


def locate(app: str, name: str) -> Any:  # noqa: ANN401 - a class or a function of the user's
    """What pickles call to find what the app's module defines."""
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
    """A file for the pickler that keeps what it is given; large buffers arrive as they are, uncopied."""

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes or any buffer
        view = memoryview(data).cast("B")
        self.pieces.append(view)
        return len(view)


class _Pickler(pickle.Pickler):
    def __init__(self, file: _Pieces, app: str, apart: values.Buffers | None = None) -> None:
        super().__init__(file, protocol=5, buffer_callback=apart)
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
                pass  # of another module, then
        return super().find_class(module, name)


def dump(value: object, app: str) -> bytes | Body:
    """Pickled for the other side. Buffers stay where they are until they are sent: do not change them meanwhile."""
    pieces = _pickled(value, app, None)
    if len(pieces) == 1:
        return bytes(pieces[0])
    return Body(pieces)


def dumped(value: object, app: str) -> bytes:
    """The same in one piece."""
    return b"".join(_pickled(value, app, None))


def dump_apart(value: object, app: str) -> tuple[bytes, list[memoryview]]:
    """Pickled, and the large buffers that are not in the pickle, where they are."""
    apart = values.Buffers()
    pieces = _pickled(values.with_bytes_apart(value), app, apart)
    return b"".join(pieces), apart.views


def _pickled(value: object, app: str, apart: values.Buffers | None) -> list[memoryview]:
    file = _Pieces()
    try:
        _Pickler(file, app, apart).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(f"an argument cannot be sent to the platform: {error}; it takes what pickle takes") from error
    return file.pieces


def load(data: bytes, app: str, memory: Any = None) -> Any:  # noqa: ANN401 - whatever was sent
    """May run code, as every unpickling does: it comes from the caller's own functions.

    `memory` has the buffers that are not in the pickle, if they came in a parcel.
    """

    def unpickle(pickled: bytes | memoryview, *, buffers: list[memoryview]) -> Any:  # noqa: ANN401 - likewise
        return _Unpickler(pickled, app, buffers).load()

    if not values.is_envelope(data):
        return unpickle(data, buffers=[])
    pickled, sizes, behind = values.opened(data)
    return values.load(pickled, sizes, values.copied(sizes, behind) if memory is None else memory, unpickle)
