"""The identity of a graph: the SHA-256 of its canonical JSON."""

import hashlib
import json

import msgspec

from aliquot.kernels.graph import (
    Argument,
    BufferArgument,
    Graph,
    GraphBuffer,
    GraphProgram,
    KernelGraph,
    LiteralArgument,
    LocalArgument,
)
from aliquot.kernels.reading import ACCESSES

_ACCESS_NAMES = {access: name for name, access in ACCESSES.items()}


def describe(graph: Graph) -> dict[str, object]:
    """Return the graph as the JSON that `read_graph` reads, with every default written out."""
    if not isinstance(graph, KernelGraph):
        shapes = {name: list(shape) for name, shape in graph.shapes.items()}
        return {"form": graph.form, "model": {"sha256": graph.model}, "shapes": shapes}
    described: dict[str, object] = {
        "form": graph.form,
        "programs": {name: _program(program) for name, program in graph.programs.items()},
        "buffers": {name: _buffer(buffer) for name, buffer in graph.buffers.items()},
        "literals": {name: msgspec.to_builtins(literal) for name, literal in graph.literals.items()},
        "kernels": [
            {
                "program": kernel.program,
                "entry": kernel.entry,
                "grid": list(kernel.grid),
                "block": list(kernel.block),
                "arguments": [_argument(argument) for argument in kernel.arguments],
            }
            for kernel in graph.kernels
        ],
        "iterations": graph.iterations,
    }
    if graph.until is not None:
        described["until"] = msgspec.to_builtins(graph.until)
    return described


def canonical(graph: Graph) -> bytes:
    """Return the one JSON text that equal graphs share. The order of names does not matter, that of kernels does."""
    return json.dumps(
        describe(graph), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(graph: Graph) -> str:
    return hashlib.sha256(canonical(graph)).hexdigest()


def _program(program: GraphProgram) -> dict[str, object]:
    if program.model is not None:
        return {
            "sha256": program.sha256,
            "bytes": program.size_bytes,
            "weightBytes": program.model.weight_bytes,
            "workBytes": program.model.work_bytes,
            "inputs": msgspec.to_builtins(program.model.inputs),
            "outputs": msgspec.to_builtins(program.model.outputs),
        }
    if program.sha256:
        return {"sha256": program.sha256}
    return {"source": program.source, "options": list(program.options)}


def _buffer(buffer: GraphBuffer) -> dict[str, object]:
    described: dict[str, object] = {"kind": buffer.kind, "dtype": buffer.dtype, "shape": list(buffer.shape)}
    if buffer.sha256:
        described["sha256"] = buffer.sha256
    if buffer.kind in ("temporary", "output"):
        described["zero"] = buffer.zero
    return described


def _argument(argument: Argument) -> dict[str, object]:
    if isinstance(argument, BufferArgument):
        return {_ACCESS_NAMES[argument.reads, argument.writes]: argument.name}
    if isinstance(argument, LiteralArgument):
        return {"literal": argument.name}
    if isinstance(argument, LocalArgument):
        return {"local": argument.size_bytes}
    return {argument.dtype: argument.value}
