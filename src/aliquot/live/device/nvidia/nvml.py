"""What the driver asks of NVML, NVIDIA's management library, and no more: so that a test can answer in its place."""

from typing import Protocol

from msgspec import Struct


class NvmlError(Exception):
    """NVML is not there, or does not answer; the text says which."""


class MigInstance(Struct, frozen=True):
    uuid: str  # MIG-…
    memory_bytes: int


class Gpu(Struct, frozen=True):
    index: int
    uuid: str  # GPU-…
    model: str
    memory_bytes: int
    minor: int = 0  # its device file is /dev/nvidia<minor>
    mig: bool = False  # MIG is switched on: only its instances can be used
    instances: tuple[MigInstance, ...] = ()


class GpuProcess(Struct, frozen=True):
    pid: int  # as the machine counts
    memory_bytes: int


class GpuSample(Struct, frozen=True):
    """How busy a process kept the GPU in the moment before."""

    pid: int
    at_us: int
    busy: float  # 0 to 1, of all multiprocessors


class Nvml(Protocol):
    """Each method may raise `NvmlError`."""

    def driver_version(self) -> str:
        """Such as 570.86.10."""
        ...

    def gpus(self) -> list[Gpu]: ...

    def processes(self, uuid: str) -> list[GpuProcess]:
        """Those that compute on the GPU, or on the MIG instance, now."""
        ...

    def samples(self, uuid: str, since_us: int) -> list[GpuSample]:
        """Of all processes, later than that; none where the GPU does not say."""
        ...

    def fault(self, uuid: str) -> str | None:
        """What is wrong with the GPU, or has gone wrong since it was opened; None: nothing."""
        ...

    def close(self) -> None: ...
