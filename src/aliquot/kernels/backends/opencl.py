"""OpenCL devices through pyopencl. On machines without a GPU, PoCL runs the kernels on the processor."""

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # programs from its cache do not tell their parameters

import numpy as np
import pyopencl as cl

from aliquot.kernels.backends.base import (
    BuildFailed,
    CompiledProgram,
    DeviceFailed,
    DeviceMemory,
    KernelArgument,
    LocalBytes,
    Region,
)
from aliquot.kernels.check import DeviceLimits
from aliquot.kernels.graph import GraphProgram
from aliquot.kernels.parameters import CONSTANT, GLOBAL, LOCAL, VALUE, Parameter

_SPACES = {
    cl.kernel_arg_address_qualifier.GLOBAL: GLOBAL,
    cl.kernel_arg_address_qualifier.CONSTANT: CONSTANT,
    cl.kernel_arg_address_qualifier.LOCAL: LOCAL,
    cl.kernel_arg_address_qualifier.PRIVATE: VALUE,
}


_CONST = int(cl.kernel_arg_type_qualifier.CONST)


class OpenClMemory:
    """A buffer of OpenCL, and the sub-buffers that kernels were given."""

    def __init__(self, context: cl.Context, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, max(size_bytes, 1))
        self._parts: dict[tuple[int, int], cl.Buffer] = {}

    def part(self, offset: int, size_bytes: int) -> cl.Buffer:
        if (offset, size_bytes) not in self._parts:
            self._parts[offset, size_bytes] = self.buffer.get_sub_region(offset, size_bytes)
        return self._parts[offset, size_bytes]

    def release(self) -> None:
        for part in self._parts.values():
            part.release()
        self._parts.clear()
        self.buffer.release()


class OpenClProgram:
    """A built program and its kernels. A kernel object is made once for each entry."""

    def __init__(self, program: cl.Program) -> None:
        self._kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}

    @property
    def entries(self) -> tuple[str, ...]:
        return tuple(self._kernels)

    def kernel(self, entry: str) -> cl.Kernel:
        return self._kernels[entry]

    def parameters(self, entry: str) -> tuple[Parameter, ...] | None:
        kernel, info = self._kernels[entry], cl.kernel_arg_info
        ask: Callable[[int, cl.kernel_arg_info], Any] = kernel.get_arg_info
        try:
            return tuple(
                Parameter(
                    _SPACES[ask(number, info.ADDRESS_QUALIFIER)],
                    ask(number, info.TYPE_NAME),
                    bool(int(ask(number, info.TYPE_QUALIFIER)) & _CONST),
                )
                for number in range(kernel.num_args)
            )
        except cl.Error:
            return None


class OpenClBackend:
    """A queue of an OpenCL device that runs its commands in order."""

    def __init__(self, device: cl.Device, context: cl.Context) -> None:
        self._device, self._context = device, context
        self._queue = cl.CommandQueue(context)
        self.limits = DeviceLimits(device.name, device.max_work_group_size, device.local_mem_size)

    @classmethod
    def open(cls, number: int) -> "OpenClBackend":
        """Return a queue of the device of this number, in a new context."""
        devices = [found for platform in cl.get_platforms() for found in platform.get_devices()]
        if number >= len(devices):
            raise DeviceFailed(f"there is no OpenCL device {number}; there are {len(devices)}")
        return cls(devices[number], cl.Context([devices[number]]))

    def with_own_queue(self) -> "OpenClBackend":
        return OpenClBackend(self._device, self._context)

    def compile(self, program: GraphProgram, _file: bytes | memoryview = b"") -> OpenClProgram:
        options = [*program.options, "-cl-kernel-arg-info"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                built = cl.Program(self._context, program.source).build(options)
        except cl.RuntimeError as error:
            raise BuildFailed(_build_log(str(error))) from error
        return OpenClProgram(built)

    def allocate(self, size_bytes: int) -> OpenClMemory:
        try:
            return OpenClMemory(self._context, size_bytes)
        except cl.Error as error:
            raise DeviceFailed(f"no memory of {size_bytes} bytes on {self.limits.device}: {error}") from error

    def free(self, memory: DeviceMemory) -> None:
        _own(memory).release()

    def load(self, region: Region, data: bytes | memoryview) -> None:
        """Copy the data through a mapping. A copy by the device would wait until the kernels of other queues end."""
        if not region.size_bytes:
            return
        memory = _own(region.memory).buffer
        flags = cl.map_flags.WRITE_INVALIDATE_REGION
        mapped, _ = cl.enqueue_map_buffer(
            self._queue, memory, flags, region.offset, (region.size_bytes,), np.dtype(np.uint8), is_blocking=True
        )
        mapped[:] = np.frombuffer(data, np.uint8)
        mapped.base.release(self._queue)

    def zero(self, region: Region) -> None:
        memory = _own(region.memory)
        cl.enqueue_fill_buffer(self._queue, memory.buffer, b"\0", region.offset, region.size_bytes)

    def copy(self, source: Region, target: Region) -> None:
        cl.enqueue_copy(
            self._queue,
            _own(target.memory).buffer,
            _own(source.memory).buffer,
            byte_count=source.size_bytes,
            src_offset=source.offset,
            dst_offset=target.offset,
        )

    def launch(
        self,
        program: CompiledProgram,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[KernelArgument],
    ) -> None:
        if not isinstance(program, OpenClProgram):
            raise TypeError(f"{program!r} is not a program of an OpenCL device")
        kernel = program.kernel(entry)
        try:
            for number, argument in enumerate(arguments):
                kernel.set_arg(number, _argument(argument))  # type: ignore[arg-type]  # its types forget LocalMemory
            size = tuple(groups * items for groups, items in zip(grid, block, strict=True))
            cl.enqueue_nd_range_kernel(self._queue, kernel, size, tuple(block))
        except cl.Error as error:
            raise DeviceFailed(f"kernel {entry} cannot be launched: {error}") from error

    def read(self, region: Region) -> bytes:
        data = bytearray(region.size_bytes)
        cl.enqueue_copy(self._queue, data, _own(region.memory).buffer, src_offset=region.offset, is_blocking=True)
        return bytes(data)

    def finish(self) -> None:
        try:
            self._queue.finish()
        except cl.Error as error:
            raise DeviceFailed(f"a kernel failed: {error}") from error


def _own(memory: DeviceMemory) -> OpenClMemory:
    if not isinstance(memory, OpenClMemory):
        raise TypeError(f"{memory!r} is not memory of an OpenCL device")
    return memory


def _argument(argument: KernelArgument) -> cl.Buffer | cl.LocalMemory | bytes:
    if isinstance(argument, Region):
        return _own(argument.memory).part(argument.offset, argument.size_bytes)
    return cl.LocalMemory(argument.size_bytes) if isinstance(argument, LocalBytes) else argument


def _build_log(text: str) -> str:
    """Return the compiler's lines of an error of pyopencl, which puts its own around them."""
    return (
        "\n".join(line for line in text.splitlines() if "warning" in line or "error" in line or "note" in line) or text
    )
