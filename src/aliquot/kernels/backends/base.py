"""The boundary to a device: what a backend must do. Everything above it is the same for all devices."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from aliquot.kernels.check import DeviceLimits
from aliquot.kernels.graph import GraphProgram
from aliquot.kernels.parameters import Parameter


class KernelError(Exception):
    """The root of errors of a device or of its driver."""


class BuildFailed(KernelError):  # noqa: N818  # the user's mistake
    """A program that does not compile. `log` is the compiler's."""

    def __init__(self, log: str) -> None:
        super().__init__("the program does not compile")
        self.log = log


class DeviceFailed(KernelError):  # noqa: N818
    """A call of the driver that failed."""


class DeviceLost(DeviceFailed):
    """A failure after which nothing can run on the device in this process. The process has to end."""


class DeviceMemory(Protocol):
    """Memory on a device."""

    size_bytes: int


class Region(NamedTuple):
    """A range of a piece of device memory."""

    memory: DeviceMemory
    offset: int
    size_bytes: int


class LocalBytes(NamedTuple):
    """An argument that asks for memory shared by a group."""

    size_bytes: int


KernelArgument = Region | LocalBytes | bytes  # scalars are bytes


class CompiledProgram(Protocol):
    """A program that is ready to launch."""

    @property
    def entries(self) -> tuple[str, ...]: ...

    def parameters(self, entry: str) -> tuple[Parameter, ...] | None:
        """Return the parameters of a kernel, or None if the driver does not tell."""


class KernelBackend(Protocol):
    """A queue of a device. Calls are made from one thread; launches run in the order in which they are made."""

    limits: DeviceLimits

    def with_own_queue(self) -> "KernelBackend":
        """Return a further queue of the same device, for another thread. The memory of both is the same."""

    def compile(self, program: GraphProgram, file: bytes | memoryview = b"") -> CompiledProgram:
        """Return a program that is ready to launch. `file` is the file that the program names by its digest."""

    def allocate(self, size_bytes: int) -> DeviceMemory: ...

    def free(self, memory: DeviceMemory) -> None: ...

    def load(self, region: Region, data: bytes | memoryview) -> None: ...

    def zero(self, region: Region) -> None: ...

    def copy(self, source: Region, target: Region) -> None:
        """Copy a region to another of the same size, after all launches before it."""

    def launch(
        self,
        program: CompiledProgram,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[KernelArgument],
    ) -> None: ...

    def read(self, region: Region) -> bytes:
        """Return the bytes of a region, after all launches before it."""

    def finish(self) -> None:
        """Wait until every launch has ended."""
