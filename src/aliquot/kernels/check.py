"""Check a graph as a whole: names, accesses and sizes, and whether any device can run it."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from aliquot.kernels.graph import (
    CONST,
    INPUT,
    OUTPUT,
    BufferArgument,
    GraphBuffer,
    GraphComplaint,
    KernelGraph,
    KernelLaunch,
    LiteralArgument,
    LocalArgument,
    ModelTensor,
)


class DeviceLimits(NamedTuple):
    """The largest block and the local memory of a device."""

    device: str
    max_block: int
    max_local_bytes: int


def check_graph(graph: KernelGraph) -> list[GraphComplaint]:
    """Return every mistake that the graph alone shows."""
    complaints: list[GraphComplaint] = []
    for number, kernel in enumerate(graph.kernels):
        complaints += _check_launch(graph, number, kernel)
    complaints += _check_written(graph)
    complaints += _check_used(graph)
    complaints += _check_constants(graph)
    complaints += _check_until(graph)
    complaints += _check_models(graph)
    return complaints


def check_limits(graph: KernelGraph, devices: Sequence[DeviceLimits]) -> list[GraphComplaint]:
    """Return the kernels whose block or local memory is above that of every device."""
    if not devices:
        return []
    complaints = []
    most_items = max(devices, key=lambda limits: limits.max_block)
    most_local = max(devices, key=lambda limits: limits.max_local_bytes)
    for number, kernel in enumerate(graph.kernels):
        items = prod(kernel.block)
        local = sum(argument.size_bytes for argument in kernel.arguments if isinstance(argument, LocalArgument))
        place = launch_place(number, kernel)
        if items > most_items.max_block:
            largest = f"{most_items.max_block} ({most_items.device})"
            complaints.append(GraphComplaint(place, f"a block has {items} work-items; the most is {largest}"))
        if local > most_local.max_local_bytes:
            largest = f"{most_local.max_local_bytes} ({most_local.device})"
            complaints.append(GraphComplaint(place, f"takes {local} bytes of local memory; the most is {largest}"))
    return complaints


def launch_place(number: int, kernel: KernelLaunch) -> str:
    return f"kernels[{number}] {kernel.entry}"


def _check_launch(graph: KernelGraph, number: int, kernel: KernelLaunch) -> Iterable[GraphComplaint]:
    place = launch_place(number, kernel)
    if kernel.program not in graph.programs:
        yield GraphComplaint(place, f"program {kernel.program!r} is not known; known are {_names(graph.programs)}")
    for position, argument in enumerate(kernel.arguments):
        if isinstance(argument, LiteralArgument) and argument.name not in graph.literals:
            where = f"{place}, argument {position} {argument.name!r}"
            yield GraphComplaint(where, f"no such literal; known are {_names(graph.literals)}")
        if not isinstance(argument, BufferArgument):
            continue
        where = f"{place}, argument {position} {argument.name!r}"
        buffer = graph.buffers.get(argument.name)
        if buffer is None:
            yield GraphComplaint(where, f"no such buffer; known are {_names(graph.buffers)}")
        elif argument.writes and buffer.kind in (INPUT, CONST):
            yield GraphComplaint(where, f"a buffer of kind {buffer.kind} is read only; write an output or a temporary")


def _check_written(graph: KernelGraph) -> Iterable[GraphComplaint]:
    written = _written(graph)
    for name in graph.named(OUTPUT):
        if name not in written:
            yield GraphComplaint(f"buffers.{name}", "no kernel writes this output")


def _written(graph: KernelGraph) -> dict[str, None]:
    return {argument.name: None for kernel in graph.kernels for argument in kernel.buffers if argument.writes}


def _check_used(graph: KernelGraph) -> Iterable[GraphComplaint]:
    programs = [kernel.program for kernel in graph.kernels]
    buffers = {argument.name: None for kernel in graph.kernels for argument in kernel.buffers}
    literals = [
        argument.name
        for kernel in graph.kernels
        for argument in kernel.arguments
        if isinstance(argument, LiteralArgument)
    ]
    for kind, known, used in (
        ("programs", graph.programs, frozenset(programs)),
        ("buffers", {name: 0 for name, buffer in graph.buffers.items() if buffer.kind != OUTPUT}, frozenset(buffers)),
        ("literals", graph.literals, frozenset(literals)),
    ):
        for name in known:
            if name not in used:
                yield GraphComplaint(f"{kind}.{name}", "no kernel uses it; remove it")


def _check_constants(graph: KernelGraph) -> Iterable[GraphComplaint]:
    """Complain of constants that share a digest and not a size: one of them must be wrong."""
    sizes: dict[str, tuple[str, int]] = {}
    for name, buffer in graph.named(CONST).items():
        other, size_bytes = sizes.setdefault(buffer.sha256, (name, buffer.size_bytes))
        if size_bytes != buffer.size_bytes:
            reason = f"takes {buffer.size_bytes} bytes, and {other!r} with the same digest takes {size_bytes}"
            yield GraphComplaint(f"buffers.{name}", reason)


def _check_models(graph: KernelGraph) -> Iterable[GraphComplaint]:
    """Complain of launches of models whose arguments are not the inputs and then the outputs of the model."""
    for number, kernel in enumerate(graph.kernels):
        program = graph.programs.get(kernel.program)
        if program is None or program.model is None:
            continue
        place = launch_place(number, kernel)
        expected = [("in", tensor) for tensor in program.model.inputs]
        expected += [("out", tensor) for tensor in program.model.outputs]
        if len(kernel.arguments) != len(expected):
            yield GraphComplaint(place, f"has {len(kernel.arguments)} arguments; the model takes {len(expected)}")
            continue
        for position, (argument, (access, tensor)) in enumerate(zip(kernel.arguments, expected, strict=True)):
            where = f"{place}, argument {position}"
            if not isinstance(argument, BufferArgument) or argument.reads != (access == "in"):
                yield GraphComplaint(where, f"expected {access!r} with a buffer, for the model's {tensor.name!r}")
            elif (buffer := graph.buffers.get(argument.name)) and not _is_of(buffer, tensor):
                found = f"{buffer.dtype}{list(buffer.shape)}"
                wanted = f"{tensor.dtype}{list(tensor.shape)}"
                yield GraphComplaint(
                    f"{where} {argument.name!r}", f"is {found}; the model's {tensor.name!r} is {wanted}"
                )


def _is_of(buffer: GraphBuffer, tensor: ModelTensor) -> bool:
    return (buffer.dtype, buffer.shape) == (tensor.dtype, tensor.shape)


def _check_until(graph: KernelGraph) -> Iterable[GraphComplaint]:
    rule = graph.until
    if rule is None:
        return
    buffer = graph.buffers.get(rule.buffer)
    if buffer is None:
        yield GraphComplaint("until.buffer", f"no buffer {rule.buffer!r}; known are {_names(graph.buffers)}")
        return
    if buffer.size != 1 or buffer.dtype not in ("f4", "f8"):
        found = f"{buffer.dtype}{list(buffer.shape)}"
        yield GraphComplaint("until.buffer", f"{rule.buffer!r} is {found}; expected one element of f4 or f8")
    if rule.buffer not in _written(graph):
        yield GraphComplaint("until.buffer", f"no kernel writes {rule.buffer!r}")
    if graph.iterations == 1:
        yield GraphComplaint("until", "the graph runs once; set iterations to the most that may run")


def _names(known: Iterable[str]) -> str:
    return ", ".join(known) or "none"
