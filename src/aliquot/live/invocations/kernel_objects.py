"""Objects in calls of kernel graphs: inputs that are stored objects, and outputs that become objects.

A call holds the versions of its inputs from its acceptance on. Deleting or replacing such an object does not touch it.
After a restart they are looked up again. Outputs are stored when the run has ended, and before its caller is answered.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from aliquot.clock import now_ms
from aliquot.kernels.binding import is_key
from aliquot.kernels.tensors import MAX_HEADER_BYTES, TensorError, read_header
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.kernel_graphs import graph_needs, named_blobs
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.call_objects import CallObjects, NamedOutput
from aliquot.live.invocations.errors import ObjectsRefusedError
from aliquot.live.invocations.launches import GraphFiles
from aliquot.live.node.base import InputFile, Outcome, Status
from aliquot.live.node.output_memory import OutputMemory
from aliquot.live.objects.registry import ObjectRegistry, StorageFullError
from aliquot.live.store.base import StoreError
from aliquot.live.store.records import KERNEL

MAX_NAMED = 64  # inputs of a call that are objects, and as many outputs; each goes to the sandbox as a descriptor
KEPT_MS = 86_400_000  # outputs of calls that nobody waits for


class _Named(Struct):
    inputs: dict[str, Raw] = {}
    outputs: dict[str, Raw] = {}
    kernels: dict[str, Any] = {}


class _Target(Struct):
    key: str = ""
    stay: bool = False


class _References(NamedTuple):
    inputs: tuple[str, ...]
    outputs: dict[str, _Target]


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
        inputs = tuple(self._held(objects, tenant, key) for key in found.inputs)
        if max(len(found.inputs), len(found.outputs)) > MAX_NAMED:
            raise ObjectsRefusedError(400, f"A call names at most {MAX_NAMED} objects as inputs and as outputs.")
        outputs = {}
        for name, size in graph_needs(call.resolved.action).outputs.items():
            if name in found.outputs:
                outputs[name] = NamedOutput(found.outputs[name].key, size, found.outputs[name].stay)
            elif call.shared is not None and call.shared.hands_on and len(outputs) < MAX_NAMED:
                outputs[name] = NamedOutput(f"sequences/{call.id}/{name}", size, stay=True, handed=True)
            elif call.durable and not call.cause and len(outputs) < MAX_NAMED:
                outputs[name] = NamedOutput(f"calls/{call.id}/{name}", size, expires=True)
        stored = [output.size for output in outputs.values() if not output.handed]
        if stored and (problem := objects.lacks_room(tenant, stored)):
            raise ObjectsRefusedError(507, problem)
        if inputs or outputs:
            call.objects = CallObjects(inputs, outputs)

    def _held(self, objects: ObjectRegistry, tenant: str, key: str) -> InputFile:
        """Return the version of an object that a call holds. Raises `ObjectsRefusedError`."""
        pending = objects.pending.find(tenant, key)
        if pending is not None:
            return InputFile(key, "", "", pending.memory.token, pending.memory)
        record = objects.find(tenant, key)
        if record is None or objects.blob_size(tenant, record.sha256) is None:
            why = objects.pending.why_lost(tenant, key)
            raise ObjectsRefusedError(410, why or f"The call names an object that is not there: {key!r}.")
        token = objects.pending.token(tenant, key, record.sha256)
        return InputFile(key, record.sha256, str(objects.files.path(tenant, record.sha256)), token)

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
                    if memory.is_given:
                        await self._store(self._objects, call.namespace.name, held.outputs[name], memory)
            except StorageFullError as full:
                outcome = _refusal(ObjectsRefusedError(507, str(full)))
            except (OSError, StoreError) as error:
                outcome = _refusal(ObjectsRefusedError(507, f"An output could not be stored: {error}."))
        end(call, outcome)

    async def _store(self, objects: ObjectRegistry, tenant: str, output: NamedOutput, memory: OutputMemory) -> None:
        """Store an output now, or when its executor has written it."""
        expires = now_ms() + KEPT_MS if output.expires else 0
        if output.handed:
            objects.pending.hand_on(tenant, output.key, memory)
        elif output.stay:
            put = partial(objects.put_memory, tenant, output.key, memory, expires)
            objects.pending.add(tenant, output.key, memory, put)
        else:
            await objects.put_memory(tenant, output.key, memory, expires)

    async def sweep_repeatedly(self, catalogue: Catalogue, calls: Mapping[str, Call]) -> None:
        """Remove blobs that no object, no kernel graph and no call names, from time to time."""

        def named(namespace: str) -> list[str]:
            return named_blobs(catalogue.entities, namespace) + held_blobs(calls, namespace)

        if self._objects is not None:
            await self._objects.sweep_repeatedly(lambda: [one.name for one in catalogue.namespaces()], named)


def held_blobs(calls: Mapping[str, Call], namespace: str) -> list[str]:
    """Return the digests that unfinished calls of a namespace hold."""
    held = (call.objects for call in calls.values() if call.objects is not None and call.namespace.name == namespace)
    return [one.sha256 for objects in held for one in objects.inputs if one.sha256]


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
    if named.kernels:  # the answer of the graph before in a sequence, whose outputs are inputs
        named.inputs, named.outputs = named.inputs | named.outputs, {}
    inputs = [target.key for raw in named.inputs.values() if (target := _target(raw)) is not None]
    outputs = {name: target for name, raw in named.outputs.items() if (target := _target(raw)) is not None}
    return _References(tuple(dict.fromkeys(inputs)), outputs)


def _call_text(call: Call) -> bytes:
    if not call.pickled:
        return bytes(call.payload)
    file = read_header(bytes(memoryview(call.payload)[: MAX_HEADER_BYTES + 8]))
    return file.metadata.get("call", "{}").encode()


def _target(raw: Raw) -> _Target | None:
    """Return what names an object, or None for any other value."""
    if bytes(raw).lstrip()[:1] != b"{":
        return None
    try:
        target = msgspec.json.decode(raw, type=_Target)
    except msgspec.DecodeError:
        return None
    return target if is_key(target.key) else None
