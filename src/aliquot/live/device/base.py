"""What a driver of devices must be able to do. The node asks; nothing is decided here.

Everything is called on the event loop and returns at once, unless it says otherwise. A sandbox is attached when it has
a process, and may have been given its slice before.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from aliquot.core.model import DeviceSpec
from aliquot.live.device.records import DeviceAccess, DeviceUsage, Enforcement


class DriverContext(Struct, frozen=True):
    data: Path = Path()  # the node's folder
    options: str = ""  # what `--devices` said after the driver's name
    own_uid: bool = False  # each sandbox has a user id of its own
    own_root: bool = False  # and a root directory


DEFAULT_CONTEXT = DriverContext()


class Driver(Protocol):
    @property
    def inventory(self) -> Sequence[DeviceSpec]:
        """The devices that are this driver's."""
        ...

    @property
    def enforcement(self) -> Enforcement: ...

    @property
    def has_own_memory(self) -> bool:
        """Its devices' memory is not the host's: then swapping takes a while, is called from a thread of its own, and
        a sandbox that cannot be swapped out has to end for its memory to come back.
        """
        ...

    def environment(self, sandbox: int, devices: Sequence[str], share: float, memory_bytes: int) -> dict[str, str]:
        """Variables that a sandbox with such a slice must have before its code is loaded.

        There is one device, or, where the function has asked for whole ones, there are several: share and memory are of
        each.
        """
        ...

    def host_bytes(self, memory_bytes: int) -> int:
        """How much of the host's memory a sandbox may need on account of so much of a device's."""
        ...

    def access(self, devices: Sequence[str]) -> DeviceAccess: ...

    def attach(self, sandbox: int, devices: Sequence[str], pids: Sequence[int]) -> Path | None:
        """These processes are the sandbox's; what they start later belongs to it, too.

        Returns the control group they are in now, if they had to leave the one in which their memory was bounded.
        """
        ...

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        """Its part of the device when others want it too, and at most. Before `attach`: what it will begin with."""
        ...

    def swap_out(self, sandbox: int) -> bool:
        """Its memory leaves the device; it stands still until it is back. False: this driver cannot."""
        ...

    def swap_in(self, sandbox: int) -> bool: ...

    def detach(self, sandbox: int) -> None:
        """It is gone, or going; passed over when it is not known."""
        ...

    def usage(self) -> list[DeviceUsage]:
        """Of those attached. Asked every 10 ms while anything runs: it must take microseconds."""
        ...

    def fault(self, device: str) -> str | None:
        """Why the device is not fit for use; None when it is. Takes a moment; not for the event loop."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...
