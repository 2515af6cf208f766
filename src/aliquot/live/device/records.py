"""The records that device drivers give to the node: enforcement, access and usage."""

from msgspec import Struct

NOT_ENFORCED = "not enforced"


class Enforcement(Struct, frozen=True):
    """How each promise is kept on this machine; a reason in `lacking` says why one is not."""

    compute: str  # such as "quota and weight (cgroups v1)"
    memory: str
    swap: str
    lacking: tuple[str, ...] = ()

    @property
    def enforces_compute(self) -> bool:
        return not self.compute.startswith(NOT_ENFORCED)


class DeviceAccess(Struct, frozen=True):
    """What of the machine a sandbox on a device must have beside what every sandbox has."""

    files: tuple[str, ...] = ()  # device files
    visible: tuple[str, ...] = ()  # what it may read
    writable: tuple[str, ...] = ()  # what it shares with others; `/dev/shm` among them is the machine's own
    preload: str = ""  # a library that must be in its process before anything else


NO_ACCESS = DeviceAccess()


class DeviceUsage(Struct, frozen=True, gc=False):
    """What a sandbox has used so far, and holds now."""

    sandbox: int
    compute_s: float  # seconds of the whole device; of several, on average
    memory_bytes: int | None  # on the device; None: the driver does not count it, the node's count of the sandbox does
