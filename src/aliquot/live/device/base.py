"""The interface of device drivers. The node calls them, and they decide nothing.

Everything is called on the event loop and returns at once, unless it says otherwise. A sandbox is attached when it has
a process, and may get its slice before that.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from aliquot.core.model import DeviceSpec
from aliquot.live.device.records import DeviceAccess, DeviceUsage, Enforcement


class DriverContext(Struct, frozen=True):
    """Facts about the node that a driver needs to find out whether it can work there."""

    data: Path = Path()  # the node's data directory
    options: str = ""  # what `--devices` said after the driver's name
    own_uid: bool = False  # each sandbox has a user id of its own
    own_root: bool = False  # each sandbox has a root directory of its own


DEFAULT_CONTEXT = DriverContext()


class DeviceMove(Protocol):
    """The move of one sandbox to other devices. `finish` or `abort` follows, on the event loop."""

    def enter(self, pids: Sequence[int]) -> None:
        """Let processes use the other devices. Blocks, so it is called from a thread. Raises `OSError`."""
        ...

    def finish(self) -> Path | None:
        """Give up the devices before. Return the control group, as `attach` does."""
        ...

    def abort(self, pids: Sequence[int]) -> None:
        """Let the processes use the devices as before. There are none if the sandbox has ended."""
        ...


class Driver(Protocol):
    @property
    def inventory(self) -> Sequence[DeviceSpec]: ...

    @property
    def enforcement(self) -> Enforcement: ...

    @property
    def has_own_memory(self) -> bool:
        """True when the devices have memory besides the host's.

        Swapping then takes a while and is called from a separate thread. A sandbox that cannot be swapped out is ended
        to free its memory.
        """
        ...

    def environment(self, sandbox: int, devices: Sequence[str], share: float, memory_bytes: int) -> dict[str, str]:
        """Return variables that a sandbox with such a slice must have before its code is loaded.

        A function that asks for whole devices may have several. Share and memory are per device.
        """
        ...

    def host_bytes(self, memory_bytes: int) -> int:
        """Return how much host memory a sandbox may need for so much device memory."""
        ...

    def access(self, devices: Sequence[str]) -> DeviceAccess: ...

    def attach(self, sandbox: int, devices: Sequence[str], pids: Sequence[int]) -> Path | None:
        """Enforce the sandbox's slice on these processes and on those that they start later.

        Returns the control group that they are in now, if they had to leave the one that limits their memory.
        """
        ...

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        """Set the sandbox's guaranteed and its highest share. May be called before `attach`."""
        ...

    def swap_out(self, sandbox: int) -> bool:
        """Move the sandbox's memory off the device. Return False if this driver cannot. The node freezes it."""
        ...

    def swap_in(self, sandbox: int) -> bool: ...

    def begin_move(self, sandbox: int, devices: Sequence[str]) -> DeviceMove | None:
        """Begin to move an attached sandbox to other devices, or return None if this driver cannot."""
        ...

    def detach(self, sandbox: int) -> None:
        """Forget a sandbox that has ended or is about to end. Unknown sandboxes are ignored."""
        ...

    def usage(self) -> list[DeviceUsage]:
        """Return the usage of all attached sandboxes. Called every 10 ms during runs, so it must take microseconds."""
        ...

    def fault(self, device: str) -> str | None:
        """Return why the device cannot be used, or None. Blocks, so it is called from a thread."""
        ...

    def close(self) -> None:
        """Release everything that the driver has made on the machine."""
        ...
