"""Read a graph from JSON. Every mistake is reported at once, with its place."""

import json
from typing import Literal

from aliquot.kernels.fields import FieldReader, Json, shown
from aliquot.kernels.graph import (
    BUFFER_KINDS,
    CONST,
    Argument,
    BufferArgument,
    Graph,
    GraphBuffer,
    GraphComplaint,
    GraphLiteral,
    GraphProgram,
    KernelGraph,
    KernelLaunch,
    LiteralArgument,
    LocalArgument,
    ModelGraph,
    ModelLayout,
    ModelTensor,
    ScalarArgument,
    StopRule,
)
from aliquot.kernels.tensors import DTYPES, MAX_SIZE_BYTES, scalar_problem
from aliquot.runtime.units import MIB

MAX_KERNELS = MAX_BUFFERS = 4096
MAX_PROGRAMS = 64
MAX_LITERALS = 256
MAX_SOURCE_BYTES = MIB
MAX_OPTIONS = 64
MAX_ARGUMENTS = 64
MAX_ITERATIONS = 10**6
MAX_GROUPS = 2**31 - 1  # in each direction of the grid
MAX_BLOCK = 1024  # work-items in each direction; `check` compares with the devices
MAX_LOCAL_BYTES = MIB

FORMS = ("opencl", "cuda", "onnx")
OPTIONS = ("-D", "-U", "-cl-", "-w", "-Werror")
ACCESSES = {"in": (True, False), "out": (False, True), "inout": (True, True)}


class GraphRefused(ValueError):  # noqa: N818  # it tells that a graph is refused, and is no fault of the program
    """A graph, or a call of it, with mistakes. `complaints` has all of them."""

    def __init__(self, complaints: list[GraphComplaint]) -> None:
        super().__init__("; ".join(map(str, complaints)))
        self.complaints = complaints


def read_graph(text: str | bytes) -> Graph:
    """Return the graph, or raise `GraphRefused` with every mistake that reading finds."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise GraphRefused([GraphComplaint("the graph", f"is not JSON: {error}")]) from error
    complaints: list[GraphComplaint] = []
    reader = FieldReader(document, "", complaints)
    form = reader.choice("form", FORMS) if not complaints else ""
    is_short = form == "onnx" and "programs" not in reader
    graph = _read_model(reader) if is_short else _read_kernels(reader, form)
    if form:
        reader.close()
    if complaints:
        raise GraphRefused(complaints)
    return graph


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _read_model(reader: FieldReader) -> ModelGraph:
    model = reader.nested(reader.take("model", {}), "model")
    digest = model.digest("sha256")
    model.close()
    table = reader.nested(reader.take("shapes", {}), "shapes")
    return ModelGraph(digest, {name: table.sizes(name) for name in list(table.keys())})


def _read_kernels(reader: FieldReader, form: str) -> KernelGraph:
    programs = reader.named("programs", _PROGRAM_READERS.get(form, _read_source), maximum=MAX_PROGRAMS)
    buffers = reader.named("buffers", _read_buffer, maximum=MAX_BUFFERS)
    literals = reader.named("literals", _read_literal, maximum=MAX_LITERALS)
    items = reader.items("kernels", maximum=MAX_KERNELS)
    if not items and "kernels" not in reader:
        reader.complain("kernels", "is missing; expected a list of kernels")
    kernels = tuple(_read_launch(reader, item, number) for number, item in enumerate(items))
    iterations = reader.whole("iterations", 1, maximum=MAX_ITERATIONS)
    until = _read_until(reader)
    taken: Literal["opencl", "cuda", "onnx"] = form if form in ("cuda", "onnx") else "opencl"  # type: ignore[assignment]
    return KernelGraph(taken, programs, buffers, kernels, literals, iterations, until)


def _read_source(reader: FieldReader) -> GraphProgram:
    source = reader.text("source", max_bytes=MAX_SOURCE_BYTES)
    if not source.strip() and isinstance(reader.take("source", ""), str):
        reader.complain("source", "is empty; expected the source of the program")
    options = []
    for number, option in enumerate(reader.items("options", maximum=MAX_OPTIONS)):
        if isinstance(option, str) and option.startswith(OPTIONS):
            options.append(option)
        else:
            reader.complain(f"options[{number}]", f"is {shown(option)}; options begin with {', '.join(OPTIONS)}")
    return GraphProgram(source, tuple(options))


def _read_binary(reader: FieldReader) -> GraphProgram:
    return GraphProgram(sha256=reader.digest("sha256"))


def _read_layout(reader: FieldReader) -> GraphProgram:
    """Read a model: its file, and the layout that the platform has read from it."""
    layout = ModelLayout(
        reader.count("weightBytes", maximum=MAX_SIZE_BYTES),
        reader.count("workBytes", maximum=MAX_SIZE_BYTES),
        _read_tensors(reader, "inputs"),
        _read_tensors(reader, "outputs"),
    )
    return GraphProgram(
        sha256=reader.digest("sha256"), size_bytes=reader.count("bytes", maximum=MAX_SIZE_BYTES), model=layout
    )


def _read_tensors(program: FieldReader, field: str) -> tuple[ModelTensor, ...]:
    found = []
    for place, value in enumerate(program.items(field, maximum=MAX_ARGUMENTS)):
        reader = program.nested(value, f"{field}[{place}]")
        name, dtype, shape = reader.text("name"), reader.dtype(), reader.sizes("shape")
        reader.close()
        if dtype:
            found.append(ModelTensor(name, dtype, shape))
    return tuple(found)


_PROGRAM_READERS = {"cuda": _read_binary, "onnx": _read_layout}


def _read_buffer(reader: FieldReader) -> GraphBuffer | None:
    kind = reader.choice("kind", BUFFER_KINDS)
    dtype, shape = reader.dtype(), reader.sizes("shape")
    digest = reader.digest("sha256") if kind == CONST else ""
    zero = reader.flag("zero", default=True) if kind in ("temporary", "output") else True
    if not kind or not dtype:
        return None
    buffer = GraphBuffer(kind, dtype, shape, digest, zero)
    if buffer.size_bytes > MAX_SIZE_BYTES:
        reader.complain("shape", f"takes {buffer.size_bytes} bytes; at most {MAX_SIZE_BYTES} are accepted")
    return buffer


def _read_literal(reader: FieldReader) -> GraphLiteral | None:
    dtype = reader.dtype()
    default = reader.take("default")
    if not dtype:
        return None
    if default is not None and (problem := scalar_problem(dtype, default)):
        reader.complain("default", problem)
        return None
    return GraphLiteral(dtype, default)  # type: ignore[arg-type]  # scalar_problem has checked it


def _read_launch(graph: FieldReader, item: Json, number: int) -> KernelLaunch:
    reader = graph.nested(item, f"kernels[{number}]")
    entry = reader.text("entry", max_bytes=256)
    if not entry:
        reader.complain("entry", "is missing; expected the name of a kernel in the program")
    program = reader.text("program", max_bytes=128)
    grid = reader.sizes("grid", most=3, least=1, maximum=MAX_GROUPS)
    block = reader.sizes("block", most=3, least=1, maximum=MAX_BLOCK)
    if grid and block and len(grid) != len(block):
        reader.complain("block", f"has {len(block)} dimensions and grid has {len(grid)}; expected as many")
    arguments = []
    for place, value in enumerate(reader.items("arguments", maximum=MAX_ARGUMENTS)):
        argument = _read_argument(reader.nested(value, f"arguments[{place}]"))
        if argument is not None:
            arguments.append(argument)
    reader.close()
    return KernelLaunch(program, entry, grid, block, tuple(arguments))


def _read_argument(reader: FieldReader) -> Argument | None:
    keys = list(reader.keys())
    if len(keys) != 1:
        reader.complain("", "expected an object with one field: in, out, inout, literal, local, or a type like i4")
        return None
    (key,) = keys
    value = reader.take(key)
    if key in ACCESSES or key == "literal":
        if not isinstance(value, str):
            reader.complain(key, f"is {shown(value)}; expected a name")
            return None
        return LiteralArgument(value) if key == "literal" else BufferArgument(value, *ACCESSES[key])
    if key == "local":
        return LocalArgument(reader.whole("local", 1, maximum=MAX_LOCAL_BYTES))
    if key not in DTYPES:
        reader.complain(key, f"is not known; known are {', '.join((*ACCESSES, 'literal', 'local', *DTYPES))}")
        return None
    if problem := scalar_problem(key, value):
        reader.complain(key, problem)
        return None
    return ScalarArgument(key, value)  # type: ignore[arg-type]  # scalar_problem has checked it


def _read_until(graph: FieldReader) -> StopRule | None:
    value = graph.take("until")
    if value is None:
        return None
    reader = graph.nested(value, "until")
    name = reader.text("buffer", max_bytes=128)
    below = reader.take("below")
    if isinstance(below, bool) or not isinstance(below, int | float):
        reader.complain("below", f"is {shown(below)}; expected a number")
        below = 0.0
    every = reader.whole("every", 1, maximum=MAX_ITERATIONS)
    reader.close()
    return StopRule(name, float(below), every)
