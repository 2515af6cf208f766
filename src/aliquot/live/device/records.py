"""The records that device drivers give to the node: enforcement, access and usage."""

from msgspec import Struct

NOT_ENFORCED = "not enforced"


class Enforcement(Struct, frozen=True):
    """The enforcement of slices on this machine. Each limit that is not enforced has a line in `lacking`."""

    compute: str  # such as "quota and weight (cgroups v1)"
    memory: str
    swap: str
    lacking: tuple[str, ...] = ()

    @property
    def enforces_compute(self) -> bool:
        return not self.compute.startswith(NOT_ENFORCED)


class DeviceAccess(Struct, frozen=True):
    """The files and libraries that a sandbox needs to use a device, beside those of every sandbox."""

    files: tuple[str, ...] = ()  # device files
    visible: tuple[str, ...] = ()  # paths that it may read
    writable: tuple[str, ...] = ()  # paths that it shares with others; `/dev/shm` is the machine's
    preload: str = ""  # a library that its process must load first


NO_ACCESS = DeviceAccess()


class DeviceUsage(Struct, frozen=True, gc=False):
    """The compute that a sandbox has used of its device so far, and the memory that it holds there now."""

    sandbox: int
    compute_s: float  # seconds of the whole device; the mean of several
    memory_bytes: int | None  # None: the driver does not count it, but the node's control groups do
