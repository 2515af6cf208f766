"""Arguments of kernels as programs write them: `out(t)`, `i4(n)`, `local(4096)`.

Files of users import this module in sandboxes, so it needs nothing but the standard library. What it makes is JSON that
`reading` checks.
"""

from collections.abc import Callable
from typing import NamedTuple


class GraphArgument(NamedTuple):
    """An argument of a launch, as in the JSON of a graph: one field and its value."""

    field: str
    value: object


def out(buffer: GraphArgument) -> GraphArgument:
    """Return an argument that the kernel writes."""
    return _of_buffer("out", buffer)


def inout(buffer: GraphArgument) -> GraphArgument:
    """Return an argument that the kernel reads and writes."""
    return _of_buffer("inout", buffer)


def local(size_bytes: int) -> GraphArgument:
    """Return memory that the work-items of a group share while they run."""
    return GraphArgument("local", size_bytes)


def _of_buffer(access: str, buffer: object) -> GraphArgument:
    if not isinstance(buffer, GraphArgument) or buffer.field not in ("in", "out", "inout"):
        raise TypeError(f"{access}({buffer!r}): expected a buffer of the graph, such as graph.output(…)")
    return GraphArgument(access, buffer.value)


def _scalar(dtype: str) -> Callable[[object], GraphArgument]:
    def make(value: object) -> GraphArgument:
        item = getattr(value, "item", None)  # of NumPy's scalars
        return GraphArgument(dtype, value if item is None else item())

    make.__name__ = make.__qualname__ = dtype
    make.__doc__ = f"Return a scalar of the type {dtype}."
    return make


i1, i2, i4, i8 = map(_scalar, ("i1", "i2", "i4", "i8"))
u1, u2, u4, u8 = map(_scalar, ("u1", "u2", "u4", "u8"))
f2, f4, f8, bf16 = map(_scalar, ("f2", "f4", "f8", "bf16"))
boolean = _scalar("bool")
