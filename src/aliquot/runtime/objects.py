"""Objects that JSON cannot hold, beside the JSON value that they belong to.

A container has four parts behind a fixed head: a JSON value, an index, and the bodies of the objects. The index is JSON
as well and has an entry for each object: the path at which the object belongs in the value, the bytes of its body, and
either null or the shared buffer and the offset at which its large buffers begin. A body is a pickle or an envelope
(`values`). Paths stand beside the value and never in it, so no data of a function is taken for a reference.
"""

from __future__ import annotations

import json
import math
import pickle
import struct
from typing import Any, NamedTuple

from . import answers, values
from .answers import RunAnswer
from .control_channel import ChannelError
from .frames import SUCCESS
from .summary import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .control_channel import ControlChannel

MAX_JSON_BYTES = 1_000_000  # of a value that a workflow looks into; larger parts become objects
MAX_OBJECTS = 1000  # of one value; a value with more of them is one object
MAX_INDEX_BYTES = 1_000_000
MAX_PATH_LENGTH = 64

_MAGIC = b"\x00ALO"  # no pickle and no envelope begins like this
_HEAD = struct.Struct("<4sII")  # magic, bytes of the JSON, bytes of the index
_PLAIN = (str, int, float, bool, type(None))


class PackedObject(NamedTuple):
    """An object of a container. `shared` is the number of a shared buffer and an offset in it, if it uses one."""

    path: list[Any]
    body: Any  # bytes or a view of them
    shared: tuple[int, int] | None = None


def pack(text: bytes, objects: list[PackedObject]) -> bytes:
    """Return a container with a JSON value and its objects."""
    index = answers.to_json([[one.path, len(one.body), one.shared] for one in objects])
    head = _HEAD.pack(_MAGIC, len(text), len(index))
    return b"".join((head, text, index, *(one.body for one in objects)))


def is_container(body: bytes | memoryview) -> bool:
    return bytes(body[:4]) == _MAGIC


def unpack(container: bytes | memoryview) -> tuple[memoryview, list[PackedObject]]:
    """Return the JSON and the objects of a container, uncopied. Raises `ValueError` if it is malformed."""
    view = memoryview(container)
    if len(view) < _HEAD.size or not is_container(view):
        raise ValueError("it is no container of objects")
    _, text_bytes, index_bytes = _HEAD.unpack_from(view)
    begin = _HEAD.size + text_bytes
    at = begin + index_bytes
    if at > len(view) or text_bytes > MAX_JSON_BYTES or index_bytes > MAX_INDEX_BYTES:
        raise ValueError("the container of objects is cut off, or its value is too large")
    try:
        index = json.loads(bytes(view[begin:at]))
    except RecursionError as error:
        raise ValueError("the index of the container is nested too deep") from error
    if not isinstance(index, list) or len(index) > MAX_OBJECTS:
        raise ValueError(f"a container has at most {MAX_OBJECTS} objects")
    found = []
    for entry in index:
        path, size, shared = _checked(entry)
        if at + size > len(view):
            raise ValueError("the container of objects is cut off")
        found.append(PackedObject(path, view[at : at + size], shared))
        at += size
    return view[_HEAD.size : begin], found


def _checked(entry: Any) -> tuple[list[Any], int, tuple[int, int] | None]:  # noqa: ANN401 - of another process
    """Return an entry of the index. Raises `ValueError`."""
    if not isinstance(entry, list) or len(entry) != 3:  # noqa: PLR2004 - path, size and shared buffer
        raise ValueError("an entry of the index has a path, a size and a shared buffer")
    path, size, shared = entry
    if not isinstance(path, list) or len(path) > MAX_PATH_LENGTH or any(type(key) not in (str, int) for key in path):
        raise ValueError("a path consists of names and positions")
    if type(size) is not int or size < 0:
        raise ValueError("the size of an object is a natural number")
    if shared is None:
        return path, size, None
    if not isinstance(shared, list) or len(shared) != 2 or any(type(one) is not int or one < 0 for one in shared):  # noqa: PLR2004
        raise ValueError("a shared buffer has a number and an offset")
    return path, size, (shared[0], shared[1])


def place(root: list[Any], path: list[Any], value: Any) -> Any:  # noqa: ANN401 - the function's
    """Put a value at a path, and return the one that was there. Raises `ValueError`.

    `root` is a list with the whole as its only element.
    """
    whole: Any = root
    last: Any = 0
    try:
        for key in path:
            whole, last = whole[last], key
        if not isinstance(whole, (list, dict)):
            raise KeyError(last)
        before = whole[last]
        whole[last] = value
    except (LookupError, TypeError) as error:
        raise ValueError(f"the path {path!r} does not lead to a part of the value") from error
    return before


# --- results ------------------------------------------------------------------------------------------------------


def take_out(value: Any) -> tuple[Any, list[tuple[list[Any], Any]]]:  # noqa: ANN401 - whatever a function returned
    """Return the value as JSON can hold it, with descriptions of the objects, and the objects with their paths."""
    found: list[tuple[list[Any], Any]] = []
    plain = _plain(value, [], found)
    if len(found) > MAX_OBJECTS:
        return describe(value), [([], value)]
    text = answers.to_json(plain)
    if len(text) <= MAX_JSON_BYTES:
        return plain, found
    if not isinstance(value, dict) or not isinstance(plain, dict):
        return describe(value), [([], value)]
    left = len(text)
    sizes = {key: len(answers.to_json(part)) for key, part in plain.items()}
    for key in sorted(sizes, key=lambda name: -sizes[name]):
        if left <= MAX_JSON_BYTES:
            break
        left -= sizes[key]
        plain[key] = describe(value[key])
        found = [one for one in found if one[0][:1] != [key]]
        found.append(([key], value[key]))
    if left > MAX_JSON_BYTES:  # it has too many small members
        return describe(value), [([], value)]
    return plain, found


def _plain(value: Any, path: list[Any], found: list[tuple[list[Any], Any]]) -> Any:  # noqa: ANN401 - likewise
    if isinstance(value, _PLAIN) and (not isinstance(value, float) or math.isfinite(value)):
        return value
    inside = len(path) < MAX_PATH_LENGTH and len(found) <= MAX_OBJECTS
    if inside and isinstance(value, dict) and all(isinstance(key, _PLAIN) for key in value):
        if all(type(key) is str for key in value):
            return {key: _plain(part, [*path, key], found) for key, part in value.items()}
        if is_json(value):  # it becomes an object whose names are text
            return value
    if inside and isinstance(value, (list, tuple)):
        return [_plain(part, [*path, number], found) for number, part in enumerate(value)]
    found.append((path, value))
    return describe(value)


def is_json(value: Any) -> bool:  # noqa: ANN401 - any value
    """Return whether JSON can hold a value."""
    try:
        answers.to_json(value)
    except Exception:  # noqa: BLE001 - a value of the function's own type may raise anything
        return False
    return True


def answer_with_objects(result: dict[str, Any], max_bytes: int, channel: ControlChannel | None) -> RunAnswer:
    """Answer with a result whose objects are pickled. Their large buffers go into a shared buffer, if there is space.

    Raises what the pickling of an object raises.
    """
    plain, found = take_out(result)
    text = answers.to_json(plain)
    if channel is not None:
        shared = _share(found, channel)
        if shared is not None:
            return RunAnswer(SUCCESS, text, *shared)
    container = pack(b"", [PackedObject(path, pickle.dumps(value, protocol=5)) for path, value in found])
    if len(container) > max_bytes:
        return answers.too_long(len(container), max_bytes)
    return RunAnswer(SUCCESS, text, container)


def _share(found: list[tuple[list[Any], Any]], channel: ControlChannel) -> tuple[bytes, int] | None:
    """Return a container inside an envelope and its shared buffer, or None if there is nothing or no space for it."""
    large = values.LargeBuffers()
    packed: list[PackedObject] = []
    offset = 0
    for path, value in found:
        first = len(large.views)
        body = pickle.dumps(values.wrap_large_bytes(value), protocol=5, buffer_callback=large)
        sizes = [len(view) for view in large.views[first:]]
        if sizes:
            packed.append(PackedObject(path, values.seal_envelope(body, sizes), (0, offset)))
            offset += values.layout(sizes)[1]
        else:
            packed.append(PackedObject(path, body))
    if not large.views:
        return None
    try:
        number = channel.put(large.views)
    except (ChannelError, OSError):
        return None
    return values.seal_envelope(pack(b"", packed), [len(view) for view in large.views]), number


# --- arguments ----------------------------------------------------------------------------------------------------


def load_object(packed: PackedObject, memory: Any = None, unpickle: Any = pickle.loads) -> Any:  # noqa: ANN401
    """Unpickle an object. `memory` is its shared buffer, if it has one."""
    body = packed.body
    if not values.is_envelope(body):
        return unpickle(body)
    pickled, sizes, behind = values.open_envelope(body)
    if packed.shared is None or memory is None:
        return values.load(pickled, sizes, values.copy_buffers(sizes, behind), unpickle)
    return values.load(pickled, sizes, memoryview(memory)[packed.shared[1] :], unpickle)


def load_arguments(
    payload: bytes | memoryview, steps: list[dict[str, Any]], numbers: list[int], channel: ControlChannel | None
) -> Any:  # noqa: ANN401 - the arguments
    """Return the arguments of a run, and put objects into those of later steps.

    The path of an object begins with the number of its step. `numbers` has the numbers of the shared buffers.
    """
    text, packed = unpack(payload)
    root = [answers.decode(str(text, "utf-8"))]
    memories = [channel.take(number) for number in numbers] if channel is not None else []
    for one in packed:
        step, *path = one.path
        memory = memories[one.shared[0]] if one.shared is not None else None
        value = load_object(one, memory)
        if step == 0:
            place(root, path, value)
        else:
            name, *rest = path
            argument = steps[step]["arguments"][name]
            whole = [argument.get("value")]
            place(whole, rest, value)
            argument["value"] = whole[0]
    return root[0]
