"""Kernel graphs: device work without host code.

A graph lists kernels over named buffers. Users submit it instead of a program that holds a GPU. So the platform owns
the device's memory, and knows before anything runs how much of it each call needs.

- `graph`: the records of a graph; `reading` makes them from JSON and reports every mistake with its place.
- `check`: what reading one field cannot tell: unknown and unused names, written inputs, limits of the devices.
- `plan`: the place of every buffer in device memory, by lifetimes.
- `digest`: the identity of a graph.
- `tensors`: element types, values as bytes, and headers of the safetensors format.
- `binding`: the body of a call, compared with the graph that it calls.
- `counters`: the hits, misses and bytes that a run must cause.
- `models`: a graph from a model in the ONNX format, with `protobuf` to read its file.
- `arguments`: what programs write, such as `kernels.out(t)`. `kernels.onnx("net.onnx")` is of the SDK.

All of it is pure: it takes values and returns values. `executor` runs graphs on the devices of `backends`.
"""

from aliquot.kernels.arguments import (
    GraphArgument,
    bf16,
    boolean,
    f2,
    f4,
    f8,
    i1,
    i2,
    i4,
    i8,
    inout,
    local,
    out,
    u1,
    u2,
    u4,
    u8,
)

TYPE_CHECKING = False  # as in `typing`
if TYPE_CHECKING:
    from aliquot.sdk.kernels.onnx_files import OnnxFile, onnx

__all__ = [
    "GraphArgument",
    "OnnxFile",
    "bf16",
    "boolean",
    "f2",
    "f4",
    "f8",
    "i1",
    "i2",
    "i4",
    "i8",
    "inout",
    "local",
    "onnx",
    "out",
    "u1",
    "u2",
    "u4",
    "u8",
]


def __getattr__(name: str) -> object:
    """Import the names of the SDK when they are used, because the server does not need them."""
    if name not in ("OnnxFile", "onnx"):
        raise AttributeError(f"module 'aliquot.kernels' has no attribute {name!r}")
    from aliquot.sdk.kernels import onnx_files  # noqa: PLC0415

    return getattr(onnx_files, name)
