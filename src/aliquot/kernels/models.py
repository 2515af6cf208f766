"""Make a graph of one kernel from a model in the ONNX format.

The file is only read as far as names, types and shapes go. No library for the format is involved, because the server
reads files of users. ONNX Runtime reads the file again in the sandbox.
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from aliquot.kernels.fields import NAME, NAME_RULE
from aliquot.kernels.graph import (
    INPUT,
    OUTPUT,
    BufferArgument,
    GraphBuffer,
    GraphComplaint,
    GraphProgram,
    KernelGraph,
    KernelLaunch,
    ModelGraph,
    ModelLayout,
    ModelTensor,
)
from aliquot.kernels.plan import Lifetime, aligned, pack_by_lifetimes
from aliquot.kernels.protobuf import MessageReader, Value, WireError, message, number, numbers, text
from aliquot.kernels.reading import MAX_ARGUMENTS, GraphRefused
from aliquot.kernels.tensors import DTYPES

PROGRAM, ENTRY = "model", "run"
INFERENCE = "onnx.shape_inference.infer_shapes adds it, and so does aliquot.kernels.onnx"
MAX_NODES = 4096
_DTYPES = {
    1: "f4", 2: "u1", 3: "i1", 4: "u2", 5: "i2", 6: "i4", 7: "i8", 9: "bool", 10: "f2", 11: "f8", 12: "u4", 13: "u8",
    16: "bf16",
}  # fmt: skip
_EXTERNAL = 1  # the place of a tensor's data: another file

Dimension = int | str  # a size, or the name of one that is not known; "" if it has no name


class Weight(NamedTuple):
    """An initialiser of a model."""

    name: str
    size_bytes: int


class ValueInfo(NamedTuple):
    """The type of a value, as far as the model tells it."""

    name: str
    dtype: str
    shape: tuple[Dimension, ...] | None


class ModelFile(NamedTuple):
    """The parts of a model that its memory follows from. A node has the names of its inputs and of its outputs."""

    weights: tuple[Weight, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    values: dict[str, ValueInfo]
    nodes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


def model_kernels(model: ModelGraph, file: bytes | memoryview) -> KernelGraph:
    """Return the graph that runs a model once, or raise `GraphRefused` with every mistake."""
    try:
        found = read_model(memoryview(file))
    except WireError as error:
        raise GraphRefused([GraphComplaint("model", f"the file is no ONNX model: {error}")]) from error
    complaints: list[GraphComplaint] = []
    symbols: dict[str, int] = {}
    inputs = _bind_inputs(found, model.shapes, symbols, complaints)
    outputs = [_resolved(one, symbols, f"output {one.name!r}", complaints) for one in found.outputs]
    if not complaints:
        complaints += _misnamed((*inputs, *outputs))
    work_bytes = _work_bytes(found, symbols, complaints) if not complaints else 0
    if complaints:
        raise GraphRefused(complaints)
    layout = ModelLayout(sum(weight.size_bytes for weight in found.weights), work_bytes, tuple(inputs), tuple(outputs))
    return _graph(GraphProgram(sha256=model.model, size_bytes=len(file), model=layout), layout)


def _graph(program: GraphProgram, layout: ModelLayout) -> KernelGraph:
    buffers = {one.name: GraphBuffer(INPUT, one.dtype, one.shape) for one in layout.inputs}
    buffers |= {one.name: GraphBuffer(OUTPUT, one.dtype, one.shape, zero=False) for one in layout.outputs}
    reads = tuple(BufferArgument(one.name, reads=True, writes=False) for one in layout.inputs)
    writes = tuple(BufferArgument(one.name, reads=False, writes=True) for one in layout.outputs)
    return KernelGraph(
        "onnx", {PROGRAM: program}, buffers, (KernelLaunch(PROGRAM, ENTRY, (1,), (1,), reads + writes),), {}
    )


# --- shapes --------------------------------------------------------------------------------------------------


def _bind_inputs(
    model: ModelFile,
    shapes: Mapping[str, tuple[int, ...]],
    symbols: dict[str, int],
    complaints: list[GraphComplaint],
) -> list[ModelTensor]:
    """Return the types of the inputs. Sizes that the model leaves open come from `shapes` and get into `symbols`."""
    weights = frozenset(weight.name for weight in model.weights)
    inputs = [one for one in model.inputs if one.name not in weights]  # old files list weights as inputs, too
    known = ", ".join(one.name for one in inputs) or "none"
    complaints += [
        GraphComplaint(f"shapes.{name}", f"no such input; the model has {known}")
        for name in shapes
        if all(one.name != name for one in inputs)
    ]
    found = []
    for one in inputs:
        if one.name in shapes and (problem := _bind(one, shapes[one.name], symbols)):
            complaints.append(GraphComplaint(f"shapes.{one.name}", problem))
        elif one.name in shapes:
            found.append(ModelTensor(one.name, one.dtype, shapes[one.name]))
        else:
            found.append(_resolved(one, symbols, f"shapes.{one.name}", complaints))
    return found


def _bind(declared: ValueInfo, shape: tuple[int, ...], symbols: dict[str, int]) -> str:
    """Note the sizes that a shape gives to the names of an input. Return why it does not fit, or nothing."""
    if declared.shape is None:
        return ""
    wanted = f"the model takes {_shown(declared.shape)}"
    if len(shape) != len(declared.shape):
        return f"is {list(shape)}; {wanted}"
    for dimension, size in zip(declared.shape, shape, strict=True):
        expected = symbols.setdefault(dimension, size) if isinstance(dimension, str) and dimension else dimension
        if expected not in ("", size):
            return f"is {list(shape)}; {wanted}" + (f" with {dimension} = {expected}" if dimension in symbols else "")
    return ""


def _resolved(one: ValueInfo, symbols: Mapping[str, int], place: str, complaints: list[GraphComplaint]) -> ModelTensor:
    """Return the type of a value with every size. A value whose size is not known is complained of."""
    sizes = [symbols.get(size, -1) if isinstance(size, str) else size for size in one.shape or ()]
    if one.shape is None or any(size < 0 for size in sizes):
        shape = "none" if one.shape is None else _shown(one.shape)
        reason = "give it in shapes" if place.startswith("shapes") else INFERENCE
        complaints.append(GraphComplaint(place, f"its shape in the model is {shape}; {reason}"))
        return ModelTensor(one.name, one.dtype, ())
    return ModelTensor(one.name, one.dtype, tuple(sizes))


def _shown(shape: Iterable[Dimension]) -> str:
    return "[" + ", ".join(str(size) or "?" for size in shape) + "]"


def _misnamed(tensors: Iterable[ModelTensor]) -> list[GraphComplaint]:
    return [
        GraphComplaint(f"the model's {one.name!r}", f"is no name of a buffer: {NAME_RULE}; rename it")
        for one in tensors
        if not NAME.fullmatch(one.name)
    ]


def _work_bytes(model: ModelFile, symbols: Mapping[str, int], complaints: list[GraphComplaint]) -> int:
    """Return the memory of the values between the nodes. Values that are never needed at the same time share it."""
    infos = (*model.inputs, *model.outputs)
    ends = frozenset(("", *(one.name for one in infos), *(weight.name for weight in model.weights)))
    made: dict[str, int] = {}
    lifetimes: dict[str, Lifetime] = {}
    for place, (read, written) in enumerate(model.nodes):
        for name in read:
            if name in made:
                lifetimes[name] = Lifetime(made[name], place)
        for name in written:
            if name not in ends:
                made[name] = place
                lifetimes[name] = Lifetime(place, place)
    sizes = {}
    for name in lifetimes:
        info = model.values.get(name, ValueInfo(name, "f4", None))
        sizes[name] = aligned(_resolved(info, symbols, f"value {name!r} of the model", complaints).size_bytes)
    offsets = pack_by_lifetimes(sizes, lifetimes)
    return max((offsets[name] + sizes[name] for name in offsets), default=0)


# --- the file ------------------------------------------------------------------------------------------------


def read_model(file: memoryview) -> ModelFile:
    """Read the parts of a file that are needed here. Raises `WireError`."""
    reader = MessageReader()
    graph = [message(value) for field, value in reader.fields(file) if field == 7]  # noqa: PLR2004 - ModelProto.graph
    if not graph:
        raise WireError("it has no graph")
    parts: dict[int, list[Value]] = {}
    for field, value in reader.fields(graph[0]):
        parts.setdefault(field, []).append(value)
    nodes, weights, inputs, outputs, values = (parts.get(field, []) for field in (1, 5, 11, 12, 13))
    if len(nodes) > MAX_NODES:
        raise WireError(f"it has {len(nodes)} nodes; at most {MAX_NODES} are accepted")
    if max(len(inputs), len(outputs)) > MAX_ARGUMENTS:
        raise WireError(f"it has {len(inputs)} inputs and {len(outputs)} outputs; at most {MAX_ARGUMENTS} are accepted")
    infos = [_value_info(message(value), reader) for value in values]
    return ModelFile(
        tuple(_weight(message(value), reader) for value in weights),
        tuple(_value_info(message(value), reader) for value in inputs),
        tuple(_value_info(message(value), reader) for value in outputs),
        {info.name: info for info in infos},
        tuple(_node(message(value), reader) for value in nodes),
    )


def _node(data: memoryview, reader: MessageReader) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = [(field, text(value)) for field, value in reader.fields(data) if field in (1, 2)]
    return tuple(name for field, name in found if field == 1), tuple(name for field, name in found if field != 1)


def _weight(data: memoryview, reader: MessageReader) -> Weight:
    sizes: list[int] = []
    name, dtype = "", "f4"
    for field, value in reader.fields(data):
        if field == 1:
            sizes += numbers(value)
        elif field == 2:  # noqa: PLR2004 - TensorProto.data_type
            dtype = _dtype(number(value), "an initialiser")
        elif field == 8:  # noqa: PLR2004 - TensorProto.name
            name = text(value)
        elif field == 14 and number(value) == _EXTERNAL:  # noqa: PLR2004 - TensorProto.data_location
            raise WireError("its weights are in another file; save it as one file")
    if any(size < 0 for size in sizes):
        raise WireError(f"the initialiser {name!r} has a negative size")
    return Weight(name, prod(sizes) * DTYPES[dtype].item_bytes)


def _value_info(data: memoryview, reader: MessageReader) -> ValueInfo:
    name, dtype, shape = "", "", None
    for field, value in reader.fields(data):
        if field == 1:
            name = text(value)
        for kind, tensor in reader.fields(message(value)) if field == 2 else ():  # noqa: PLR2004 - ValueInfoProto.type
            if kind != 1:
                raise WireError(f"the value {name!r} is no tensor")
            for part, described in reader.fields(message(tensor)):
                if part == 1:
                    dtype = _dtype(number(described), f"the value {name!r}")
                elif part == 2:  # noqa: PLR2004 - TypeProto.Tensor.shape
                    shape = tuple(_dimension(message(one), reader) for _, one in reader.fields(message(described)))
    return ValueInfo(name, dtype or "f4", shape)


def _dimension(data: memoryview, reader: MessageReader) -> Dimension:
    size: Dimension = ""
    for field, value in reader.fields(data):
        if field == 1:
            size = number(value)
        elif field == 2:  # noqa: PLR2004 - Dimension.dim_param
            size = text(value)
    return size


def _dtype(code: int, what: str) -> str:
    if code not in _DTYPES:
        raise WireError(f"{what} has the element type {code}; known are {', '.join(map(str, _DTYPES))}")
    return _DTYPES[code]
