"""CUDA devices through NVIDIA's driver library. Not yet run on hardware: tested with a scripted driver library."""

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p

from aliquot.kernels.backends.base import (
    BuildFailed,
    CompiledProgram,
    DeviceFailed,
    DeviceMemory,
    KernelArgument,
    LocalBytes,
    Region,
)
from aliquot.kernels.backends.cuda_library import (
    BUILD_ERRORS,
    ERROR_LOG_BUFFER,
    ERROR_LOG_BYTES,
    LIBRARY,
    MAX_SHARED_BYTES,
    MAX_THREADS_PER_BLOCK,
    OUT_OF_MEMORY,
    CudaLibrary,
    Pointer,
    entries_of,
)
from aliquot.kernels.check import DeviceLimits
from aliquot.kernels.graph import GraphProgram
from aliquot.kernels.parameters import Parameter

_LOG_BYTES = 16_384
_NAME_BYTES = 256
_NON_BLOCKING = 1  # a stream that does not wait for the default stream
_DIMENSIONS = 3


class CudaMemory:
    """Memory on the device, by its address there."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address = address
        self.size_bytes = size_bytes


class CudaProgram:
    """A loaded module with its kernels."""

    def __init__(self, library: CudaLibrary, module: c_void_p, entries: tuple[str, ...]) -> None:
        self.entries = entries
        self._functions: dict[str, c_void_p] = {}
        for entry in entries:
            function = self._functions[entry] = c_void_p()
            library.call("cuModuleGetFunction", byref(function), module, entry.encode())

    def parameters(self, _entry: str) -> tuple[Parameter, ...] | None:
        """Return None: the driver tells sizes at most, and no types."""
        return None

    def function(self, entry: str) -> c_void_p:
        return self._functions[entry]


class CudaBackend:
    """A stream of a CUDA device. The context is the device's primary one, which all streams share."""

    def __init__(self, library: CudaLibrary, context: c_void_p, limits: DeviceLimits) -> None:
        self.limits = limits
        self._library = library
        self._context = context
        self._stream = c_void_p()
        self._call("cuStreamCreate", byref(self._stream), _NON_BLOCKING)

    @classmethod
    def open(cls, number: int, path: str = LIBRARY) -> "CudaBackend":
        """Return a stream of the device of this number. Raises `OSError` without a driver library."""
        library, count, device = CudaLibrary(path), c_int(), c_int()
        library.call("cuDeviceGetCount", byref(count))
        if number >= count.value:
            raise DeviceFailed(f"there is no CUDA device {number}; there are {count.value}")
        library.call("cuDeviceGet", byref(device), number)
        name, context = ctypes.create_string_buffer(_NAME_BYTES), c_void_p()
        library.call("cuDeviceGetName", name, _NAME_BYTES, device)
        threads, shared = c_int(), c_int()
        library.call("cuDeviceGetAttribute", byref(threads), MAX_THREADS_PER_BLOCK, device)
        library.call("cuDeviceGetAttribute", byref(shared), MAX_SHARED_BYTES, device)
        library.call("cuDevicePrimaryCtxRetain", byref(context), device)
        return cls(library, context, DeviceLimits(name.value.decode(errors="replace"), threads.value, shared.value))

    def with_own_queue(self) -> "CudaBackend":
        return CudaBackend(self._library, self._context, self.limits)

    def _call(self, name: str, *arguments: object) -> None:
        """Make a call in this device's context, which each thread has to choose."""
        self._library.call("cuCtxSetCurrent", self._context)
        self._library.call(name, *arguments)

    def compile(self, program: GraphProgram, file: bytes | memoryview = b"") -> CudaProgram:
        """Load PTX, which the driver compiles, or a CUBIN."""
        if program.source:
            raise BuildFailed("a program of this form is a file with PTX or a CUBIN, named by its SHA-256")
        image, module = bytes(file) + b"\0", c_void_p()  # PTX is a text that ends with a zero
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(ERROR_LOG_BUFFER, ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        self._library.call("cuCtxSetCurrent", self._context)
        error = self._library.attempt("cuModuleLoadDataEx", byref(module), image, 2, options, values)
        if error is not None and error.code in BUILD_ERRORS:
            raise BuildFailed(log.value.decode(errors="replace").strip() or f"{BUILD_ERRORS[error.code]}: {error.text}")
        if error is not None:
            raise DeviceFailed(f"a program cannot be loaded: {error}")
        return CudaProgram(self._library, module, entries_of(image))

    def allocate(self, size_bytes: int) -> CudaMemory:
        address = Pointer()
        self._library.call("cuCtxSetCurrent", self._context)
        error = self._library.attempt("cuMemAlloc_v2", byref(address), max(size_bytes, 1))
        if error is not None and error.code == OUT_OF_MEMORY:
            raise DeviceFailed(f"no memory of {size_bytes} bytes on {self.limits.device}")
        if error is not None:
            raise DeviceFailed(f"cuMemAlloc_v2 failed with {error}")
        return CudaMemory(address.value, size_bytes)

    def free(self, memory: DeviceMemory) -> None:
        self._call("cuMemFree_v2", Pointer(_own(memory).address))

    def load(self, region: Region, data: bytes | memoryview) -> None:
        if region.size_bytes:
            held = _address_of(data)
            self._call("cuMemcpyHtoDAsync_v2", _place(region), held, region.size_bytes, self._stream)
            self.finish()  # the data may go after this

    def zero(self, region: Region) -> None:
        if region.size_bytes:
            self._call("cuMemsetD8Async", _place(region), 0, region.size_bytes, self._stream)

    def copy(self, source: Region, target: Region) -> None:
        if source.size_bytes:
            self._call("cuMemcpyDtoDAsync_v2", _place(target), _place(source), source.size_bytes, self._stream)

    def launch(
        self,
        program: CompiledProgram,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[KernelArgument],
    ) -> None:
        """Launch a kernel. Local memory is not an argument here: the launch has the sum of it."""
        if not isinstance(program, CudaProgram):
            raise TypeError(f"{program!r} is not a program of a CUDA device")
        shared = sum(argument.size_bytes for argument in arguments if isinstance(argument, LocalBytes))
        values = [_value(argument) for argument in arguments if not isinstance(argument, LocalBytes)]
        pointers = (c_void_p * max(len(values), 1))(*(ctypes.addressof(value) for value in values))
        sizes = [*_three(grid), *_three(block), shared]
        self._call("cuLaunchKernel", program.function(entry), *sizes, self._stream, pointers, None)

    def read(self, region: Region) -> bytes:
        data = ctypes.create_string_buffer(max(region.size_bytes, 1))
        if region.size_bytes:
            self._call("cuMemcpyDtoHAsync_v2", data, _place(region), region.size_bytes, self._stream)
            self.finish()
        return data.raw[: region.size_bytes]

    def finish(self) -> None:
        self._call("cuStreamSynchronize", self._stream)


def _own(memory: DeviceMemory) -> CudaMemory:
    if not isinstance(memory, CudaMemory):
        raise TypeError(f"{memory!r} is not memory of a CUDA device")
    return memory


def _place(region: Region) -> Pointer:
    return Pointer(_own(region.memory).address + region.offset)


def _value(argument: Region | bytes) -> "Pointer | ctypes.Array[ctypes.c_char]":
    """Return the value of a parameter in memory of the host, from which the driver copies it."""
    if isinstance(argument, Region):
        return _place(argument)
    return ctypes.create_string_buffer(argument, len(argument))


def _three(sizes: Sequence[int]) -> list[int]:
    return [*sizes, *[1] * (_DIMENSIONS - len(sizes))]


def _address_of(data: bytes | memoryview) -> object:
    """Return something that ctypes takes as the address of the data. A view that is read-only has to be copied."""
    if isinstance(data, bytes):
        return data
    return bytes(data) if data.readonly else (ctypes.c_char * data.nbytes).from_buffer(data)
