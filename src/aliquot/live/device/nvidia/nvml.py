"""The part of NVML, NVIDIA's management library, that the driver uses. Tests implement it, too."""

from typing import Protocol

from msgspec import Struct


class NvmlError(Exception):
    """NVML is missing or has failed, and the text says why."""


class MigInstance(Struct, frozen=True):
    uuid: str  # MIG-…
    memory_bytes: int


class Gpu(Struct, frozen=True):
    index: int
    uuid: str  # GPU-…
    model: str
    memory_bytes: int
    minor: int = 0  # its device file is /dev/nvidia<minor>
    mig: bool = False  # MIG is enabled, so only its instances can be used
    instances: tuple[MigInstance, ...] = ()


class GpuProcess(Struct, frozen=True):
    pid: int  # in the machine's pid namespace
    memory_bytes: int


class GpuSample(Struct, frozen=True):
    """The utilisation of a GPU by one process since its sample before."""

    pid: int
    at_us: int
    busy: float  # from 0 to 1, of all multiprocessors


class Nvml(Protocol):
    """The calls of NVML. Each may raise `NvmlError`."""

    def driver_version(self) -> str:
        """Return the driver's version, such as 570.86.10."""
        ...

    def gpus(self) -> list[Gpu]: ...

    def processes(self, uuid: str) -> list[GpuProcess]:
        """Return the processes that use the GPU or MIG instance now."""
        ...

    def samples(self, uuid: str, since_us: int) -> list[GpuSample]:
        """Return the samples of all processes after `since_us`, or none if the GPU has no samples."""
        ...

    def fault(self, uuid: str) -> str | None:
        """Return the fault that the GPU has, or has had since NVML was opened, or None."""
        ...

    def close(self) -> None: ...
