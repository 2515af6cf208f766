"""Build the document of a kernel graph in Python.

A file with graphs is also loaded in sandboxes of functions. So building needs only the standard library, and the
document is checked when it is used.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from aliquot.kernels.arguments import GraphArgument
from aliquot.sdk.errors import UsageError

_KINDS = {"b": "bool", "i": "i", "u": "u", "f": "f"}


class GraphProgramName:
    """A program of a graph. `program["gemm"]` names one of its kernels."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, entry: str) -> tuple[str, str]:
        return self.name, entry


class GraphBuilder:
    """Collects buffers, programs and launches. `document` is the graph as JSON, `blobs` are its constants by digest."""

    def __init__(self, name: str, iterations: int) -> None:
        self.name = name
        self._closed = ""  # why nothing can be added
        self._blobs: dict[str, bytes] = {}
        self._document: dict[str, Any] = {
            "form": "opencl",
            "programs": {},
            "buffers": {},
            "literals": {},
            "kernels": [],
            "iterations": iterations,
        }

    def input(self, name: str, dtype: str, shape: Sequence[int]) -> GraphArgument:
        """Add an array that each call brings."""
        return self._buffer(name, "input", dtype, shape)

    def output(self, name: str, dtype: str, shape: Sequence[int], *, zero: bool = True) -> GraphArgument:
        """Add an array that each call returns. It is zeroed before its first use unless `zero` is false."""
        return self._buffer(name, "output", dtype, shape, zero=zero)

    def temporary(self, name: str, dtype: str, shape: Sequence[int], *, zero: bool = True) -> GraphArgument:
        """Add an array that exists while a call runs."""
        return self._buffer(name, "temporary", dtype, shape, zero=zero)

    def const(self, name: str, array: Any) -> GraphArgument:  # noqa: ANN401 - an array of NumPy
        """Add a constant array of NumPy. It stays on the device between calls."""
        data = array.tobytes()
        digest = hashlib.sha256(data).hexdigest()
        self._blobs[digest] = data
        return self._buffer(name, "const", dtype_of(array), array.shape, sha256=digest)

    def literal(self, name: str, dtype: str, default: object = None) -> GraphArgument:
        """Add a scalar that each call may set. Without a default it must."""
        self._take_name("literals", name)
        self._document["literals"][name] = {"dtype": dtype, **({} if default is None else {"default": default})}
        return GraphArgument("literal", name)

    def program(self, source: str, options: Sequence[str] = (), *, name: str = "") -> GraphProgramName:
        """Add a program in OpenCL C. `options` are those of the compiler, such as `-DN=1024`."""
        name = name or f"p{len(self._document['programs'])}"
        self._take_name("programs", name)
        self._document["programs"][name] = {"source": source, "options": list(options)}
        return GraphProgramName(name)

    def launch(
        self, kernel: tuple[str, str], grid: int | Sequence[int], block: int | Sequence[int], *arguments: GraphArgument
    ) -> None:
        """Add a kernel to the list: `grid` groups of `block` work-items. A buffer is read unless `out` is around it."""
        self._check_open()
        for argument in arguments:
            given: object = argument  # users have no type checker
            if not isinstance(given, GraphArgument):
                taken = "a buffer, a literal, or a scalar with its type, such as i4(7)"
                raise UsageError(f"{self.name}: {kernel[1]}: {argument!r} does not fit; it takes {taken}")
        program, entry = kernel
        self._document["kernels"].append(
            {
                "program": program,
                "entry": entry,
                "grid": _sizes(grid),
                "block": _sizes(block),
                "arguments": [{argument.field: argument.value} for argument in arguments],
            }
        )

    def until(self, buffer: GraphArgument, *, below: float, every: int = 1) -> None:
        """End the iterations when a scalar is below a bound. It is read after every so many of them."""
        self._document["until"] = {"buffer": buffer.value, "below": below, "every": every}

    def _buffer(self, name: str, kind: str, dtype: str, shape: Sequence[int], **more: object) -> GraphArgument:
        self._take_name("buffers", name)
        more = {key: value for key, value in more.items() if value is not True}
        self._document["buffers"][name] = {"kind": kind, "dtype": dtype, "shape": list(shape), **more}
        return GraphArgument("in", name)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self.name}: nothing can be added to this graph; {self._closed}")

    def _take_name(self, table: str, name: str) -> None:
        self._check_open()
        if name in self._document[table]:
            raise UsageError(f"{self.name}: {table} has {name!r} already")


def dtype_of(array: Any) -> str:  # noqa: ANN401 - an array of NumPy
    """Return the name of an array's element type."""
    kind = _KINDS.get(array.dtype.kind)
    if kind is None:
        raise UsageError(f"an array of {array.dtype} does not fit; a graph takes numbers and truth values")
    return kind if kind == "bool" else f"{kind}{array.dtype.itemsize}"


def _sizes(given: int | Sequence[int]) -> list[int]:
    return [given] if isinstance(given, int) else list(given)
