"""Compare the body of a call with the graph that it calls.

A body is JSON, or a safetensors file whose metadata has the rest of the call as JSON under `call`. The arrays of such a
file are never decoded here: an input is the range of its bytes.
"""

import base64
import binascii
import json
import re
from typing import NamedTuple

from msgspec import Struct

from aliquot.kernels.fields import FieldReader, Json, shown
from aliquot.kernels.graph import INPUT, OUTPUT, GraphBuffer, GraphComplaint, KernelGraph, Scalar
from aliquot.kernels.reading import GraphRefused
from aliquot.kernels.tensors import TensorError, TensorFile, scalar_problem, to_bytes
from aliquot.runtime.units import MIB

MAX_JSON_BYTES = MIB
MAX_KEY_LENGTH = 512
KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")  # names of objects


class InlineInput(NamedTuple):
    """An input whose bytes stand in the call."""

    data: bytes


class ObjectInput(NamedTuple):
    """An input that is a stored object."""

    key: str


class FileInput(NamedTuple):
    """An input that is a range of bytes of the call's safetensors file."""

    start: int
    end: int


CallInput = InlineInput | ObjectInput | FileInput


class OutputTarget(NamedTuple):
    """The object that an output becomes. With `stay` it is also left on the device for calls that name it."""

    key: str
    stay: bool = False


class KernelCall(Struct, frozen=True):
    """A call that fits its graph: an input for every input, a value for every literal."""

    inputs: dict[str, CallInput]
    outputs: dict[str, OutputTarget]
    literals: dict[str, Scalar]
    iterations: int

    def answered_bytes(self, graph: KernelGraph) -> int:
        """Return the size of the outputs that the answer itself must carry."""
        return sum(buffer.size_bytes for name, buffer in graph.named(OUTPUT).items() if name not in self.outputs)


def bind_json(graph: KernelGraph, body: Json) -> KernelCall:
    """Return the call that a JSON body makes, or raise `GraphRefused` with every mistake."""
    return _bind(graph, handed_on(graph, body), {})


def handed_on(graph: KernelGraph, body: Json) -> Json:
    """Return a body in which the outputs of the graph before in a sequence are inputs, those of equal names."""
    if not isinstance(body, dict) or "kernels" not in body or not isinstance(body.get("outputs"), dict):
        return body
    known = graph.named(INPUT)
    inputs = {name: value for name, value in body["outputs"].items() if name in known}
    given = body.get("inputs")
    rest = {key: value for key, value in body.items() if key not in ("kernels", "outputs", "inputs")}
    return rest | {"inputs": (given if isinstance(given, dict) else {}) | inputs}


def bind_file(graph: KernelGraph, file: TensorFile) -> KernelCall:
    """Return the call that a safetensors file makes, or raise `GraphRefused` with every mistake."""
    try:
        body = json.loads(file.metadata.get("call", "{}"))
    except (ValueError, RecursionError) as error:
        raise GraphRefused([GraphComplaint("metadata.call", f"is not JSON: {error}")]) from error
    complaints, ranges = [], {}
    for name, entry in file.entries.items():
        buffer = graph.buffers.get(name)
        if buffer is None or buffer.kind != INPUT:
            complaints.append(_unknown(graph, name))
        elif (entry.dtype, entry.shape) != (buffer.dtype, buffer.shape):
            found = f"is {entry.dtype}{list(entry.shape)}"
            complaints.append(
                GraphComplaint(f"input {name!r}", f"{found}; expected {buffer.dtype}{list(buffer.shape)}")
            )
        else:
            ranges[name] = FileInput(entry.start, entry.end)
    if complaints:
        raise GraphRefused(complaints)
    return _bind(graph, body, ranges)


def _bind(graph: KernelGraph, body: Json, ranges: dict[str, FileInput]) -> KernelCall:
    complaints: list[GraphComplaint] = []
    reader = FieldReader(body, "", complaints)
    given = reader.nested(reader.take("inputs", {}), "inputs")
    inputs: dict[str, CallInput] = dict(ranges)
    for name in list(given.keys()):
        buffer = graph.buffers.get(name)
        if buffer is None or buffer.kind != INPUT:
            complaints.append(_unknown(graph, name))
            continue
        if name in ranges:
            complaints.append(GraphComplaint(f"input {name!r}", "is in the file and in the call; expected one of both"))
        try:
            inputs[name] = _input(buffer, given.take(name))
        except TensorError as error:
            complaints.append(GraphComplaint(f"input {name!r}", str(error)))
            inputs[name] = InlineInput(b"")
    missing = [name for name in graph.named(INPUT) if name not in inputs]
    complaints += [GraphComplaint(f"input {name!r}", "is missing") for name in missing]
    outputs, literals = _outputs(graph, reader, complaints), _literals(graph, reader, complaints)
    iterations = reader.whole("iterations", graph.iterations, maximum=graph.iterations)
    reader.close()
    if complaints:
        raise GraphRefused(complaints)
    return KernelCall(inputs, outputs, literals, iterations)


def _unknown(graph: KernelGraph, name: str) -> GraphComplaint:
    return GraphComplaint(f"input {name!r}", f"no such input; known are {', '.join(graph.named(INPUT)) or 'none'}")


def _input(buffer: GraphBuffer, value: Json) -> InlineInput | ObjectInput:
    if not isinstance(value, dict):
        return InlineInput(to_bytes(buffer.dtype, buffer.shape, value))
    if list(value) == ["key"] and is_key(value["key"]):
        return ObjectInput(value["key"])
    if list(value) != ["base64"] or not isinstance(value["base64"], str):
        raise TensorError(f'is {shown(value)}; expected lists of numbers, {{"key": "…"}} or {{"base64": "…"}}')
    try:
        data = base64.b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise TensorError(f"base64 cannot be decoded: {error}") from error
    if len(data) != buffer.size_bytes:
        raise TensorError(f"has {len(data)} bytes; {buffer.dtype}{list(buffer.shape)} takes {buffer.size_bytes}")
    return InlineInput(data)


def _outputs(graph: KernelGraph, call: FieldReader, complaints: list[GraphComplaint]) -> dict[str, OutputTarget]:
    known = graph.named(OUTPUT)
    given = call.nested(call.take("outputs", {}), "outputs")
    targets = {}
    for name in list(given.keys()):
        if name not in known:
            complaints.append(GraphComplaint(f"output {name!r}", f"no such output; known are {', '.join(known)}"))
            continue
        reader = given.nested(given.take(name), name)
        key = reader.take("key")
        if not is_key(key):
            reader.complain("key", f"is {shown(key)}; expected the name of an object")
            key = ""
        targets[name] = OutputTarget(str(key), reader.flag("stay", default=False))
        reader.close()
    keys = [target.key for target in targets.values() if target.key]
    twice = dict.fromkeys(key for key in keys if keys.count(key) > 1)
    complaints += [GraphComplaint("outputs", f"two outputs are to become the object {key!r}") for key in twice]
    return targets


def _literals(graph: KernelGraph, call: FieldReader, complaints: list[GraphComplaint]) -> dict[str, Scalar]:
    given = call.nested(call.take("literals", {}), "literals")
    values: dict[str, Scalar] = {}
    for name in list(given.keys()):
        if name not in graph.literals:
            known = ", ".join(graph.literals) or "none"
            complaints.append(GraphComplaint(f"literal {name!r}", f"no such literal; known are {known}"))
    for name, literal in graph.literals.items():
        value = given.take(name) if name in given else literal.default
        if value is None:
            complaints.append(GraphComplaint(f"literal {name!r}", "is missing and has no default"))
        elif problem := scalar_problem(literal.dtype, value):
            complaints.append(GraphComplaint(f"literal {name!r}", problem))
        else:
            values[name] = value  # type: ignore[assignment]  # scalar_problem has checked it
    return values


def is_key(value: Json) -> bool:
    """Return whether the value can be the key of an object."""
    return isinstance(value, str) and len(value) <= MAX_KEY_LENGTH and bool(KEY.fullmatch(value))
