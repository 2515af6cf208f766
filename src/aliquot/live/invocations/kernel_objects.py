"""Objects in calls of kernel graphs: inputs that are stored objects, and outputs that become objects.

A call holds the versions of its inputs from its acceptance on. Deleting or replacing such an object does not touch it.
After a restart they are looked up again. Outputs are stored when the run has ended, and before its caller is answered.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from aliquot.clock import now_ms
from aliquot.kernels.binding import is_key
from aliquot.kernels.tensors import MAX_HEADER_BYTES, TensorError, read_header
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.kernel_graphs import graph_needs, named_blobs
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.call_objects import CallObjects
from aliquot.live.invocations.errors import ObjectsRefusedError
from aliquot.live.invocations.launches import GraphFiles
from aliquot.live.node.base import Outcome, Status
from aliquot.live.objects.registry import ObjectRegistry, StorageFullError
from aliquot.live.store.base import StoreError
from aliquot.live.store.records import KERNEL

MAX_NAMED = 64  # inputs of a call that are objects, and as many outputs; each goes to the sandbox as a descriptor
KEPT_MS = 86_400_000  # outputs of calls that nobody waits for


class _Named(Struct):
    inputs: dict[str, Raw] = {}
    outputs: dict[str, Raw] = {}


class _Key(Struct):
    key: str = ""


class _References(NamedTuple):
    inputs: tuple[str, ...]
    outputs: dict[str, str]


class KernelObjects:
    """Looks objects up for calls, and stores their outputs."""

    def __init__(self, objects: ObjectRegistry | None) -> None:
        self._objects = objects
        self.graphs = GraphFiles(objects)

    def take(self, call: Call) -> None:
        """Hold the objects that a call names. Raises `ObjectsRefusedError`. Calls of functions have none."""
        objects = self._objects
        if call.resolved.action.exec.kind != KERNEL or objects is None or call.objects is not None or call.on_disk:
            return
        tenant, found = call.namespace.name, _references(call)
        held = {key: record for key in found.inputs if (record := objects.find(tenant, key)) is not None}
        missing = [key for key in found.inputs if key not in held]
        gone = [key for key, record in held.items() if objects.blob_size(tenant, record.sha256) is None]
        if missing or gone:
            names = ", ".join(map(repr, (*missing, *gone)))
            raise ObjectsRefusedError(410, f"The call names objects that are not there: {names}.")
        if max(len(found.inputs), len(found.outputs)) > MAX_NAMED:
            raise ObjectsRefusedError(400, f"A call names at most {MAX_NAMED} objects as inputs and as outputs.")
        sizes = graph_needs(call.resolved.action).outputs
        unnamed = [name for name in sizes if name not in found.outputs] if call.durable and not call.cause else []
        known = {name: key for name, key in found.outputs.items() if name in sizes}  # of others the executor complains
        outputs = {**known, **{name: f"calls/{call.id}/{name}" for name in unnamed[:MAX_NAMED]}}
        if outputs and (problem := objects.lacks_room(tenant, [sizes[name] for name in outputs])):
            raise ObjectsRefusedError(507, problem)
        if held or outputs:
            path = partial(objects.files.path, tenant)
            call.objects = CallObjects(held, outputs, sizes, frozenset(unnamed), path)

    def problem(self, call: Call) -> Outcome | None:
        """Hold the objects of a call that is about to run, unless it does. Return how it ends if they are not there."""
        try:
            self.take(call)
        except ObjectsRefusedError as refused:
            return _refusal(refused)
        return None

    async def store(self, call: Call, outcome: Outcome, end: Callable[[Call, Outcome], None]) -> None:
        """Store the outputs of a call that has ended well, and end it. Without room for them it ends with an error."""
        held = call.objects
        if held is not None and self._objects is not None:
            memories, held.memories = held.memories, {}
            try:
                for name, memory in memories.items():
                    expires = now_ms() + KEPT_MS if name in held.expire else 0
                    await self._objects.put_memory(call.namespace.name, held.outputs[name], memory, expires)
            except StorageFullError as full:
                outcome = _refusal(ObjectsRefusedError(507, str(full)))
            except (OSError, StoreError) as error:
                outcome = _refusal(ObjectsRefusedError(507, f"An output could not be stored: {error}."))
        end(call, outcome)

    async def sweep_repeatedly(self, catalogue: Catalogue, calls: Mapping[str, Call]) -> None:
        """Remove blobs that no object, no kernel graph and no call names, from time to time."""

        def named(namespace: str) -> list[str]:
            return named_blobs(catalogue.entities, namespace) + held_blobs(calls, namespace)

        if self._objects is not None:
            await self._objects.sweep_repeatedly(lambda: [one.name for one in catalogue.namespaces()], named)


def held_blobs(calls: Mapping[str, Call], namespace: str) -> list[str]:
    """Return the digests that unfinished calls of a namespace hold."""
    held = (call.objects for call in calls.values() if call.objects is not None and call.namespace.name == namespace)
    return [record.sha256 for objects in held for record in objects.inputs.values()]


def _refusal(refused: ObjectsRefusedError) -> Outcome:
    """Return the end of a call, in the form in which a graph refuses calls that do not fit it."""
    error = {"complaints": [str(refused)], "status": refused.status}
    return Outcome(Status.APPLICATION_ERROR, json.dumps({"error": error}, separators=(",", ":")).encode(), 0.0)


def _references(call: Call) -> _References:
    """Return the keys that a body names. What is wrong with a body is told by the executor, which compares it."""
    try:
        text = _call_text(call)
        named = msgspec.json.decode(text, type=_Named) if b'"key"' in text else _Named()
    except (msgspec.DecodeError, TensorError):
        return _References((), {})
    inputs = [_key_of(raw) for raw in named.inputs.values()]
    outputs = {name: _key_of(raw) for name, raw in named.outputs.items()}
    return _References(
        tuple(dict.fromkeys(key for key in inputs if key)), {name: key for name, key in outputs.items() if key}
    )


def _call_text(call: Call) -> bytes:
    if not call.pickled:
        return bytes(call.payload)
    file = read_header(bytes(memoryview(call.payload)[: MAX_HEADER_BYTES + 8]))
    return file.metadata.get("call", "{}").encode()


def _key_of(raw: Raw) -> str:
    if bytes(raw).lstrip()[:1] != b"{":
        return ""
    try:
        key = msgspec.json.decode(raw, type=_Key).key
    except msgspec.DecodeError:
        return ""
    return key if is_key(key) else ""
