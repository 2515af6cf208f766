"""Models in the ONNX format, run by ONNX Runtime on the processor.

A model is a program with one kernel. Its arguments are the model's inputs and then its outputs, which ONNX Runtime
reads and writes where they are: nothing is copied. Weights are prepacked when the session is made, which takes their
memory twice and makes runs faster.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as states

from aliquot.kernels.backends.base import (
    BuildFailed,
    CompiledProgram,
    DeviceFailed,
    DeviceMemory,
    KernelArgument,
    Region,
)
from aliquot.kernels.check import DeviceLimits
from aliquot.kernels.graph import GraphProgram, ModelLayout, ModelTensor
from aliquot.kernels.models import ENTRY
from aliquot.kernels.parameters import Parameter
from aliquot.kernels.plan import ALIGNMENT_BYTES

_ERRORS = (
    states.Fail, states.InvalidArgument, states.NoSuchFile, states.NoModel, states.EngineError,
    states.RuntimeException, states.InvalidProtobuf, states.NotImplemented, states.InvalidGraph, states.EPFail,
)  # fmt: skip
_ERRORS_ONLY = 3  # severity of what it logs
_BFLOAT16 = 16  # its number in the ONNX format, since NumPy has no such type
_RUNTIME_TYPES = {
    "tensor(bool)": "bool", "tensor(int8)": "i1", "tensor(int16)": "i2", "tensor(int32)": "i4", "tensor(int64)": "i8",
    "tensor(uint8)": "u1", "tensor(uint16)": "u2", "tensor(uint32)": "u4", "tensor(uint64)": "u8",
    "tensor(float16)": "f2", "tensor(float)": "f4", "tensor(double)": "f8", "tensor(bfloat16)": "bf16",
}  # fmt: skip


class OnnxMemory:
    """Memory of the host at a multiple of 256 bytes."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        whole = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
        start = -whole.ctypes.data % ALIGNMENT_BYTES
        self.array = whole[start : start + size_bytes]
        self.address = self.array.ctypes.data

    def part(self, region: Region) -> "np.ndarray[Any, Any]":
        return self.array[region.offset : region.offset + region.size_bytes]


class OnnxProgram:
    """A session of ONNX Runtime with the binding of its inputs and outputs."""

    def __init__(self, session: ort.InferenceSession, layout: ModelLayout) -> None:
        self.session = session
        self.inputs = layout.inputs
        self.outputs = layout.outputs
        self.binding = session.io_binding()
        self._bound: tuple[KernelArgument, ...] = ()

    @property
    def entries(self) -> tuple[str, ...]:
        return (ENTRY,)

    def parameters(self, _entry: str) -> tuple[Parameter, ...] | None:
        """Return None: the layout of the model has been compared with the graph."""
        return None

    def bind(self, arguments: Sequence[KernelArgument]) -> None:
        """Bind the buffers of a launch, unless they are those of the launch before."""
        if len(arguments) != len(self.inputs) + len(self.outputs):
            raise DeviceFailed(f"the model takes {len(self.inputs) + len(self.outputs)} arrays, not {len(arguments)}")
        if self._bound and all(map(_is_same, self._bound, arguments)):
            return
        self.binding.clear_binding_inputs()
        self.binding.clear_binding_outputs()
        count = len(self.inputs)
        for tensor, argument in zip(self.inputs, arguments[:count], strict=True):
            self.binding.bind_input(*_bound(tensor, argument))
        for tensor, argument in zip(self.outputs, arguments[count:], strict=True):
            self.binding.bind_output(*_bound(tensor, argument))
        self._bound = tuple(arguments)


class OnnxBackend:
    """The processors that this process may use, through ONNX Runtime."""

    def __init__(self, _device: int = 0) -> None:
        self.limits = DeviceLimits("ONNX Runtime on the processor", 1, 0)

    def with_own_queue(self) -> "OnnxBackend":
        return self

    def compile(self, program: GraphProgram, file: bytes | memoryview = b"") -> OnnxProgram:
        layout = program.model
        if layout is None:
            raise BuildFailed("a program of this form is a model, and this one has no layout")
        options = ort.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        options.log_severity_level = _ERRORS_ONLY
        try:
            session = ort.InferenceSession(bytes(file), options, providers=["CPUExecutionProvider"])
        except _ERRORS as error:
            raise BuildFailed(str(error)) from error
        problems = [
            *_mismatches("input", layout.inputs, session.get_inputs()),
            *_mismatches("output", layout.outputs, session.get_outputs()),
        ]
        if problems:
            raise BuildFailed("\n".join(problems))
        return OnnxProgram(session, layout)

    def allocate(self, size_bytes: int) -> OnnxMemory:
        try:
            return OnnxMemory(size_bytes)
        except MemoryError as error:
            raise DeviceFailed(f"no memory of {size_bytes} bytes on {self.limits.device}") from error

    def free(self, memory: DeviceMemory) -> None:
        """Do nothing: the memory is returned with the last reference to it."""

    def load(self, region: Region, data: bytes | memoryview) -> None:
        _own(region.memory).part(region)[:] = np.frombuffer(data, np.uint8)

    def zero(self, region: Region) -> None:
        _own(region.memory).part(region)[:] = 0

    def copy(self, source: Region, target: Region) -> None:
        _own(target.memory).part(target)[:] = _own(source.memory).part(source)

    def launch(
        self,
        program: CompiledProgram,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[KernelArgument],
    ) -> None:
        if not isinstance(program, OnnxProgram):
            raise TypeError(f"{program!r} is not a model of ONNX Runtime")
        try:
            program.bind(arguments)
            program.session.run_with_iobinding(program.binding)
        except (*_ERRORS, ValueError, RuntimeError) as error:
            raise DeviceFailed(f"kernel {entry} failed: {error}") from error

    def read(self, region: Region) -> bytes:
        return bytes(_own(region.memory).part(region))

    def finish(self) -> None:
        """Do nothing: each launch waits for its end."""


def _own(memory: DeviceMemory) -> OnnxMemory:
    if not isinstance(memory, OnnxMemory):
        raise TypeError(f"{memory!r} is not memory of ONNX Runtime")
    return memory


def _is_same(before: KernelArgument, now: KernelArgument) -> bool:
    return (
        isinstance(before, Region)
        and isinstance(now, Region)
        and (before.memory is now.memory and before.offset == now.offset)
    )


def _bound(tensor: ModelTensor, argument: KernelArgument) -> tuple[Any, ...]:
    """Return the arguments that bind an input or output to where it lies."""
    if not isinstance(argument, Region):
        raise DeviceFailed("a model takes arrays alone, and no scalars")
    if argument.size_bytes != tensor.size_bytes:
        raise DeviceFailed(f"an array has {argument.size_bytes} bytes; the model takes {tensor.size_bytes}")
    kind: Any = _BFLOAT16
    if tensor.dtype != "bf16":
        kind = np.dtype("?" if tensor.dtype == "bool" else tensor.dtype).type
    return tensor.name, "cpu", 0, kind, tensor.shape, _own(argument.memory).address + argument.offset


def _mismatches(what: str, layout: Sequence[ModelTensor], found: Sequence[Any]) -> list[str]:
    """Return how the arrays of a session differ from the layout of the graph."""
    names, expected = [one.name for one in found], [one.name for one in layout]
    if names != expected:
        return [f"the model has the {what}s {names}; the graph says {expected}"]
    return [
        f"{what} {one.name!r} is {one.type} {one.shape}; the graph says {tensor.dtype} {list(tensor.shape)}"
        for one, tensor in zip(found, layout, strict=True)
        if _RUNTIME_TYPES.get(one.type) != tensor.dtype or not _fits(one.shape, tensor.shape)
    ]


def _fits(declared: Sequence[int | str | None], shape: Sequence[int]) -> bool:
    return len(declared) == len(shape) and all(
        size == taken for size, taken in zip(declared, shape, strict=True) if isinstance(size, int)
    )
