"""NVIDIA's driver library through ctypes: the calls that kernel graphs need, and its errors."""

import ctypes
import re
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from typing import NamedTuple

from aliquot.kernels.backends.base import DeviceFailed, DeviceLost

LIBRARY = "libcuda.so.1"
MAX_THREADS_PER_BLOCK, MAX_SHARED_BYTES = 1, 8  # attributes of a device
ERROR_LOG_BUFFER, ERROR_LOG_BYTES = 5, 6  # options of the compiler
OUT_OF_MEMORY, NOT_FOUND = 2, 500
# A program that cannot be compiled or loaded: the user's mistake.
BUILD_ERRORS = {
    200: "invalid image",
    209: "no binary for this GPU",
    218: "invalid PTX",
    221: "the driver has no compiler",
    222: "the version of PTX is too new for the driver",
}
# The context cannot be used any more: an illegal address, an assertion, an illegal instruction and the like.
_FIRST_FATAL, _LAST_FATAL, _ECC = 700, 720, 214

Pointer = ctypes.c_uint64  # an address on the device

_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuModuleLoadDataEx": (POINTER(c_void_p), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuMemAlloc_v2": (POINTER(Pointer), c_size_t),
    "cuMemFree_v2": (Pointer,),
    "cuMemcpyHtoDAsync_v2": (Pointer, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, Pointer, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (Pointer, Pointer, c_size_t, c_void_p),
    "cuMemsetD8Async": (Pointer, c_ubyte, c_size_t, c_void_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}


class CudaError(NamedTuple):
    """The code that a call has returned, with the driver's name and text for it."""

    code: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} ({self.code}): {self.text}"


class CudaLibrary:
    """The driver library. `call` raises for every error but those that its caller takes."""

    def __init__(self, path: str = LIBRARY) -> None:
        """Load the library. Raises `OSError` if it is not there."""
        self._library = ctypes.CDLL(path)
        for name, signature in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = signature, c_int
        self.call("cuInit", 0)

    def attempt(self, name: str, *arguments: object) -> CudaError | None:
        """Make a call, and return its error."""
        code = getattr(self._library, name)(*arguments)
        return None if not code else self._error(code)

    def call(self, name: str, *arguments: object) -> None:
        """Make a call. Raises `DeviceFailed`, or `DeviceLost` if nothing can run on the device any more."""
        if (error := self.attempt(name, *arguments)) is not None:
            lost = _FIRST_FATAL <= error.code < _LAST_FATAL or error.code == _ECC
            raise (DeviceLost if lost else DeviceFailed)(f"{name} failed with {error}")

    def _error(self, code: int) -> CudaError:
        name, text = c_char_p(), c_char_p()
        self._library.cuGetErrorName(code, byref(name))
        self._library.cuGetErrorString(code, byref(text))
        found = ((one.value or b"unknown").decode(errors="replace") for one in (name, text))
        return CudaError(code, *found)


def entries_of(program: bytes) -> tuple[str, ...]:
    """Return the names of the kernels in PTX or in a CUBIN. The older drivers cannot tell them."""
    if program.startswith(b"\x7fELF"):
        names = re.findall(rb"\0\.text\.([A-Za-z_$][\w$]*)(?=\0)", program)
    else:
        names = re.findall(rb"\.entry\s+([A-Za-z_$%][\w$]*)", program)
    return tuple(dict.fromkeys(name.decode() for name in names))
