"""The records of a kernel graph."""

from math import prod
from typing import Literal, NamedTuple

from msgspec import Struct

from aliquot.kernels.tensors import DTYPES

INPUT, CONST, TEMPORARY, OUTPUT = "input", "const", "temporary", "output"
BUFFER_KINDS = (INPUT, CONST, TEMPORARY, OUTPUT)

Scalar = bool | int | float


class GraphComplaint(NamedTuple):
    """A mistake in a graph or in a call of it: its place, and the reason with what would be accepted."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class ModelTensor(Struct, frozen=True):
    """An input or an output of a model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * DTYPES[self.dtype].item_bytes


class ModelLayout(Struct, frozen=True):
    """The arrays and the memory of a model in the ONNX format, as its file tells them."""

    weight_bytes: int  # of its initialisers
    work_bytes: int  # of the values between its nodes, packed by lifetimes
    inputs: tuple[ModelTensor, ...]
    outputs: tuple[ModelTensor, ...]


class GraphProgram(Struct, frozen=True):
    """A program: its source with the compiler's options, or the digest of a file. A model also has its layout."""

    source: str = ""
    options: tuple[str, ...] = ()
    sha256: str = ""
    size_bytes: int = 0  # of the file, where it is known
    model: ModelLayout | None = None


class GraphBuffer(Struct, frozen=True):
    """A named array on the device. Constants are named by the digest of their bytes."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str = ""
    zero: bool = True  # outputs and temporaries are zeroed before their first use in a call

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * DTYPES[self.dtype].item_bytes

    @property
    def is_zeroed(self) -> bool:
        return self.zero and self.kind in (TEMPORARY, OUTPUT)


class GraphLiteral(Struct, frozen=True):
    """A scalar that a call may set."""

    dtype: str
    default: Scalar | None = None


class BufferArgument(Struct, frozen=True):
    """A buffer that a kernel reads, writes, or both."""

    name: str
    reads: bool
    writes: bool


class ScalarArgument(Struct, frozen=True):
    """A scalar that is part of the graph."""

    dtype: str
    value: Scalar


class LiteralArgument(Struct, frozen=True):
    """A scalar that the call sets, or its default."""

    name: str


class LocalArgument(Struct, frozen=True):
    """Memory that the work-items of one group share while they run."""

    size_bytes: int


Argument = BufferArgument | ScalarArgument | LiteralArgument | LocalArgument


class KernelLaunch(Struct, frozen=True):
    """One kernel of the list. `grid` counts groups of `block` work-items, as in CUDA."""

    program: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...]

    @property
    def buffers(self) -> tuple[BufferArgument, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, BufferArgument))


class StopRule(Struct, frozen=True):
    """The condition that ends a solver: a scalar below a bound, read after every so many iterations."""

    buffer: str
    below: float
    every: int = 1


class KernelGraph(Struct, frozen=True):
    """A list of kernels over named buffers, repeated `iterations` times."""

    form: Literal["opencl", "cuda", "onnx"]
    programs: dict[str, GraphProgram]
    buffers: dict[str, GraphBuffer]
    kernels: tuple[KernelLaunch, ...]
    literals: dict[str, GraphLiteral]
    iterations: int = 1
    until: StopRule | None = None

    def named(self, kind: str) -> dict[str, GraphBuffer]:
        """Return the buffers of one kind."""
        return {name: buffer for name, buffer in self.buffers.items() if buffer.kind == kind}


class ModelGraph(Struct, frozen=True):
    """A model in the ONNX format, by the digest of its file and the shapes of its inputs.

    `models.model_kernels` makes a graph of one kernel from it, as soon as the file is at hand.
    """

    model: str
    shapes: dict[str, tuple[int, ...]]
    form: Literal["onnx"] = "onnx"


Graph = KernelGraph | ModelGraph
