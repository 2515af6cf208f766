"""Arrays of NumPy as the bytes that graphs take, and back."""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from aliquot.kernels.graph import INPUT, OUTPUT, GraphBuffer, KernelGraph
from aliquot.kernels.tensors import make_header, read_header, scalar_problem
from aliquot.sdk.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

_NUMPY_TYPES = {"bool": "?", "bf16": "<u2"}  # NumPy has no bfloat16: its arrays are bits


def bind(
    graph: KernelGraph, given: Mapping[str, Any], stored: Collection[str] = ()
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the bytes of each input and the value of each literal. Raises a `UsageError` that names what is wrong.

    `stored` are inputs that are objects of the platform.
    """
    inputs = {name: buffer for name, buffer in graph.named(INPUT).items() if name not in stored}
    for name in given:
        if name not in inputs and name not in graph.literals:
            known = ", ".join((*inputs, *graph.literals)) or "none"
            raise UsageError(f"no input or literal {name!r}; the graph has {known}")
    for name in inputs:
        if name not in given:
            raise UsageError(f"input {name!r} is missing")
    literals = {name: literal.default for name, literal in graph.literals.items()}
    literals |= {name: _plain(given[name]) for name in literals if name in given}
    for name, value in literals.items():
        if value is None:
            raise UsageError(f"literal {name!r} is missing and has no default")
        if problem := scalar_problem(graph.literals[name].dtype, value):
            raise UsageError(f"literal {name!r}: {problem}")
    return {name: array_bytes(name, buffer, given[name]) for name, buffer in inputs.items()}, literals


def array_bytes(name: str, buffer: GraphBuffer, value: Any) -> bytes:  # noqa: ANN401 - an array, or nested lists
    """Return the bytes of an array. One of another type or shape is refused and not converted."""
    import numpy as np

    kind = np.dtype(numpy_type(buffer.dtype))
    array = value if isinstance(value, np.ndarray) else np.asarray(value, kind)
    if array.dtype != kind or array.shape != buffer.shape:
        expected = f"{buffer.dtype}{list(buffer.shape)}"
        raise UsageError(f"input {name!r} is {array.dtype}{list(array.shape)}; expected {expected}")
    return bytes(array.tobytes())


def to_arrays(graph: KernelGraph, outputs: Mapping[str, bytes]) -> dict[str, "np.ndarray[Any, Any]"]:
    """Return the outputs of a run as arrays."""
    import numpy as np

    buffers = graph.named(OUTPUT)
    return {
        name: np.frombuffer(data, numpy_type(buffers[name].dtype)).reshape(buffers[name].shape).copy()
        for name, data in outputs.items()
    }


def is_stored(value: Any) -> bool:  # noqa: ANN401 - an input
    """Return whether an input names a stored object: `{"key": "…"}`."""
    return isinstance(value, dict) and set(value) == {"key"}


def call_file(
    graph: KernelGraph, given: Mapping[str, Any], iterations: int | None, outputs: Mapping[str, Any] | None = None
) -> bytes:
    """Return the safetensors file that calls a graph on the platform.

    An input may be a stored object, and each of `outputs` becomes one: its key, or `{"key": "…", "stay": True}`.
    """
    stored = {name: value for name, value in given.items() if is_stored(value)}
    inputs, literals = bind(graph, {name: value for name, value in given.items() if name not in stored}, stored)
    rest: dict[str, Any] = {"literals": literals, **({} if iterations is None else {"iterations": iterations})}
    if stored:
        rest["inputs"] = stored
    if outputs:
        rest["outputs"] = {name: {"key": key} if isinstance(key, str) else key for name, key in outputs.items()}
    shapes = {name: (graph.buffers[name].dtype, graph.buffers[name].shape) for name in inputs}
    return make_header(shapes, {"call": json.dumps(rest)}) + b"".join(inputs.values())


def read_file(graph: KernelGraph, body: bytes) -> dict[str, Any]:
    """Return the outputs in a safetensors file. Those that became objects are `{"key": "…"}`."""
    file = read_header(body)
    sent = {name: body[entry.start : entry.end] for name, entry in file.entries.items()}
    return {**to_arrays(graph, sent), **json.loads(file.metadata.get("outputs", "{}"))}


def numpy_type(dtype: str) -> str:
    """Return the type of NumPy with the same bytes."""
    return _NUMPY_TYPES.get(dtype, f"<{dtype}")


def _plain(value: Any) -> Any:  # noqa: ANN401 - a scalar of Python or NumPy
    item = getattr(value, "item", None)
    return value if item is None else item()
