"""Backends: the devices that kernel graphs run on, in one table by the form of the graph."""

from collections.abc import Callable

from aliquot.kernels.backends.base import KernelBackend


class BackendMissing(RuntimeError):  # noqa: N818  # says what to install
    """A backend whose library is not installed or finds no device."""


def open_backend(form: str, device: int = 0) -> KernelBackend:
    """Return the backend for graphs of this form, on the device of that number."""
    return BACKENDS[form](device)


def _opencl(device: int) -> KernelBackend:
    try:
        from aliquot.kernels.backends.opencl import OpenClBackend  # noqa: PLC0415  # optional
    except ImportError as error:
        raise BackendMissing("graphs of form opencl need: pip install 'aliquot[kernels]'") from error
    return OpenClBackend.open(device)


def _onnx(device: int) -> KernelBackend:
    try:
        from aliquot.kernels.backends.onnx import OnnxBackend  # noqa: PLC0415  # optional
    except ImportError as error:
        raise BackendMissing("graphs of form onnx need: pip install 'aliquot[kernels]'") from error
    return OnnxBackend(device)


def _cuda(device: int) -> KernelBackend:
    from aliquot.kernels.backends.cuda import CudaBackend  # noqa: PLC0415  # only where it is used

    try:
        return CudaBackend.open(device)
    except OSError as error:
        raise BackendMissing(f"graphs of form cuda need NVIDIA's driver library, which is not here: {error}") from error


BACKENDS: dict[str, Callable[[int], KernelBackend]] = {
    "opencl": _opencl,
    "onnx": _onnx,
    "cuda": _cuda,
}
