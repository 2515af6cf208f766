"""Objects of executions: values that JSON cannot hold, which the server keeps and hands on without opening them.

A sandbox sends the result of a task as JSON with a container of objects beside it (`runtime.objects`). In the machine
an `ObjectRef` stands for each of them. A task that gets one receives the object in a container, as shared memory where
the object is still in memory. An object of a durable execution is on disk before anything follows from it.
"""

import mmap
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from aliquot.budgets import Budget, BudgetError, Reservation
from aliquot.live.bodies.large import LARGE_BODY_BYTES, release
from aliquot.live.node.base import BufferHandle, Outcome
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES
from aliquot.runtime import objects, values
from aliquot.runtime.objects import PackedObject
from aliquot.workflow.values import ObjectRef, Value, replace_objects

MAX_BUFFERS = 100  # of one run; further objects are copied into its payload
MAX_KIND_CHARACTERS = 200
Path = tuple[str | int, ...]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class HeldObject:
    """An object in memory: its body, and the shared buffer with its large buffers, if it has one."""

    __slots__ = ("body", "buffer", "offset", "reserved")

    def __init__(self, body: bytes | memoryview, buffer: BufferHandle | None = None, offset: int = 0) -> None:
        self.body = body
        self.buffer = buffer
        self.offset = offset
        self.reserved: Reservation | None = None  # its part of the namespace's memory

    @property
    def size(self) -> int:
        """The bytes of the object, those in a shared buffer included."""
        shared = values.layout(values.open_envelope(self.body)[1])[1] if self.buffer is not None else 0
        return len(self.body) + shared

    def inlined(self) -> bytes | memoryview:
        """Return the body with its large buffers behind it, for the disk and for clients."""
        if self.buffer is None:
            return self.body
        with (
            mmap.mmap(self.buffer.fd, self.buffer.size, prot=mmap.PROT_READ) as memory,
            memoryview(memory) as whole,
            whole[self.offset :] as own,
        ):
            return values.inline_buffers(self.body, own)


Held = dict[str, HeldObject]


class ValueWithObjects(Struct, frozen=True):
    """A value with references, and the objects that they stand for, by id."""

    value: Value
    held: Held


def read_result(task: str, result: Value, outcome: Outcome) -> ValueWithObjects:
    """Return the result of a task with references to its objects. Raises `ValueError` if they are malformed."""
    assert outcome.pickled is not None  # noqa: S101 - the caller has looked
    container, buffer = outcome.pickled, outcome.shared_buffer
    if buffer is not None:
        container = values.open_envelope(container)[0]
    _, packed = objects.unpack(container)
    return _with_references(task, result, packed, buffer)


def read_container(prefix: str, container: bytes | memoryview) -> ValueWithObjects:
    """Return the value of a whole container: an input, or the output of an execution. Raises `ValueError`."""
    text, packed = objects.unpack(container)
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the value cannot be read: {error}") from error
    return _with_references(prefix, value, packed, None)


def _with_references(
    prefix: str, value: Value, packed: Sequence[PackedObject], buffer: BufferHandle | None
) -> ValueWithObjects:
    root, held = [value], {}
    for number, one in enumerate(packed):
        size, own = len(one.body), None
        if one.shared is not None:
            own, size = buffer, size + _shared_bytes(one, buffer)
        name = f"{prefix}.{number}"
        held[name] = HeldObject(one.body, own, one.shared[1] if one.shared is not None else 0)
        described = objects.place(root, one.path, None)
        kind = described.get("type") if isinstance(described, dict) else None
        kind = kind[:MAX_KIND_CHARACTERS] if isinstance(kind, str) else "object"
        objects.place(root, one.path, ObjectRef(name, kind, size))
    return ValueWithObjects(root[0], held)


def _shared_bytes(one: PackedObject, buffer: BufferHandle | None) -> int:
    """Return how many bytes of a shared buffer an object uses. Raises `ValueError` if it has no such bytes."""
    if one.shared is None or buffer is None or one.shared[0] != 0 or not values.is_envelope(one.body):
        raise ValueError("an object names a shared buffer that it does not have")
    size = values.layout(values.open_envelope(one.body)[1])[1]
    if one.shared[1] + size > buffer.size:
        raise ValueError("an object is larger than its shared buffer")
    return size


def reserve(held: Held, budget: Budget, tenant: str, outcome: Outcome | None = None) -> None:
    """Count the objects in the namespace's memory, instead of as a reply. Raises `BudgetError`.

    Shared buffers have a budget of their own.
    """
    size = sum(len(one.body) for one in held.values())
    if size > SMALL_PAYLOAD_BYTES:
        if not budget.fits(tenant, size):
            raise BudgetError(budget.refusal(tenant, size))
        whole = Reservation(budget, tenant, size)
        for one in held.values():
            one.reserved = whole
    if outcome is not None and isinstance(outcome.pickled, memoryview):
        release(outcome.pickled)


# --- what goes out ------------------------------------------------------------------------------------------------


class PlainValue(Struct, frozen=True):
    """A value as JSON, and the paths of the references that were in it."""

    text: bytes
    found: tuple[tuple[Path, ObjectRef], ...] = ()

    @property
    def names(self) -> set[str]:
        """The ids of the objects."""
        return {one.id for _, one in self.found}


def plain_value(value: Value) -> PlainValue:
    """Encode a value. References become null. A value without references is encoded at once."""
    try:
        return PlainValue(_encode(value))
    except TypeError:
        found: list[tuple[Path, ObjectRef]] = []

        def note(one: ObjectRef, path: Path) -> None:
            found.append((path, one))

        return PlainValue(_encode(replace_objects(value, note)), tuple(found))


class ObjectPayload(Struct, frozen=True):
    """A container of objects as the payload of a run, and the shared buffers that go with it."""

    payload: bytes | memoryview
    buffers: tuple[BufferHandle, ...] = ()


def make_payload(text: bytes, found: Sequence[tuple[Path, ObjectRef]], held: Mapping[str, HeldObject]) -> ObjectPayload:
    """Return the container for a run. Objects in shared memory are not copied."""
    buffers: list[BufferHandle] = []
    packed = []
    for path, reference in found:
        one = held[reference.id]
        if one.buffer is None:
            packed.append(PackedObject(list(path), one.body))
            continue
        number = next((at for at, other in enumerate(buffers) if other is one.buffer), len(buffers))
        if number == MAX_BUFFERS:
            packed.append(PackedObject(list(path), one.inlined()))
            continue
        if number == len(buffers):
            buffers.append(one.buffer)
        packed.append(PackedObject(list(path), one.body, (number, one.offset)))
    return ObjectPayload(_as_payload(objects.pack(text, packed)), tuple(buffers))


def make_container(plain: PlainValue, held: Mapping[str, HeldObject]) -> bytes | memoryview:
    """Return a container with all objects inside, for the disk, for clients and for other executions."""
    packed = [PackedObject(list(path), held[reference.id].inlined()) for path, reference in plain.found]
    return _as_payload(objects.pack(plain.text, packed))


def _as_payload(body: bytes) -> bytes | memoryview:
    """Return large bytes as a view, in which form the store writes them in pieces."""
    return memoryview(body) if len(body) > LARGE_BODY_BYTES else body
