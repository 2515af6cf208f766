"""Compare the arguments of a launch with the parameters of the compiled kernel."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aliquot.kernels.check import launch_place
from aliquot.kernels.graph import (
    Argument,
    BufferArgument,
    GraphComplaint,
    KernelGraph,
    KernelLaunch,
    LiteralArgument,
    LocalArgument,
)
from aliquot.kernels.tensors import DTYPES

GLOBAL, CONSTANT, LOCAL, VALUE = "global", "constant", "local", "value"
_SCALAR_BYTES = {
    "bool": 1, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "int": 4, "uint": 4, "float": 4,
    "long": 8, "ulong": 8, "double": 8,
}  # fmt: skip


class Parameter(NamedTuple):
    """A parameter of a compiled kernel: where it lies, its type, and whether the kernel may not write through it."""

    space: str
    type_name: str
    is_const: bool


def check_parameters(
    graph: KernelGraph, number: int, kernel: KernelLaunch, parameters: Sequence[Parameter]
) -> Iterable[GraphComplaint]:
    """Return the mistakes that only the compiled kernel shows."""
    place = launch_place(number, kernel)
    if len(parameters) != len(kernel.arguments):
        reason = f"has {len(kernel.arguments)} arguments; the kernel takes {len(parameters)}"
        yield GraphComplaint(place, reason)
        return
    for position, (argument, parameter) in enumerate(zip(kernel.arguments, parameters, strict=True)):
        reason = _mismatch(graph, argument, parameter)
        if reason:
            named = f" {argument.name!r}" if isinstance(argument, BufferArgument | LiteralArgument) else ""
            yield GraphComplaint(f"{place}, argument {position}{named}", reason)


def _mismatch(graph: KernelGraph, argument: Argument, parameter: Parameter) -> str:
    if isinstance(argument, BufferArgument):
        if parameter.space not in (GLOBAL, CONSTANT):
            return f"is a buffer; the kernel takes {_described(parameter)}"
        if argument.writes and (parameter.is_const or parameter.space == CONSTANT):
            return "is written; the kernel's pointer is const"
        return ""
    if isinstance(argument, LocalArgument):
        return "" if parameter.space == LOCAL else f"is local memory; the kernel takes {_described(parameter)}"
    dtype = graph.literals[argument.name].dtype if isinstance(argument, LiteralArgument) else argument.dtype
    if parameter.space != VALUE:
        return f"is a scalar of {dtype}; the kernel takes {_described(parameter)}"
    expected = _SCALAR_BYTES.get(parameter.type_name)
    if expected is not None and expected != DTYPES[dtype].item_bytes:
        return f"is a scalar of {dtype}; the kernel takes {_described(parameter)}"
    return ""


def _described(parameter: Parameter) -> str:
    if parameter.space == VALUE:
        return f"a scalar of type {parameter.type_name}"
    return f"a pointer to {parameter.space} memory"
