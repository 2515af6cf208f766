"""The driver `host`: virtual devices made of this machine's cores, so that everything runs without a GPU.

A device is one core, or a fraction of one when there are more devices than cores. A sandbox that holds several devices
has the cores of all of them.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import structlog

from aliquot.core.interfaces import Allotment
from aliquot.core.model import DeviceSpec
from aliquot.live.device.base import DeviceMove, Driver
from aliquot.live.device.records import NO_ACCESS, DeviceAccess, DeviceUsage, Enforcement
from aliquot.live.device.slices import SliceEnforcer, open_enforcer
from aliquot.live.device.slices.base import HostSlice, VirtualDevice

_log = structlog.get_logger(__name__)


class HostMove(DeviceMove):
    """The move of a sandbox from its slice to another one."""

    def __init__(self, driver: "HostDriver", sandbox: int, before: HostSlice, made: HostSlice) -> None:
        self._driver = driver
        self._sandbox = sandbox
        self._before = before
        self._made = made

    def enter(self, pids: Sequence[int]) -> None:
        self._made.enter(pids)

    def finish(self) -> Path | None:
        return self._driver.arrived(self._sandbox, self._before, self._made)

    def abort(self, pids: Sequence[int]) -> None:
        with contextlib.suppress(OSError):  # the sandbox has ended meanwhile
            if pids:
                self._before.enter(pids)
        self._made.remove()


def _used(host_slice: HostSlice) -> float:
    """Return the compute that a slice has used, or 0 if its sandbox has ended."""
    try:
        return host_slice.compute_s()
    except OSError:
        return 0.0


class HostDriver(Driver):
    def __init__(
        self, tag: str, devices: Sequence[DeviceSpec], cores: Sequence[int], enforcer: SliceEnforcer | None = None
    ) -> None:
        self._devices = tuple(devices)
        self._cores_each = min(1.0, len(cores) / max(len(devices), 1))
        # The last core is used first, because most machines run everything else on the first one.
        self._core_of = {device.name: cores[-1 - number % len(cores)] for number, device in enumerate(devices)}
        self._allotted: dict[int, Allotment] = {}
        self._slices: dict[int, HostSlice] = {}
        self._used_before: dict[int, float] = {}  # by sandbox: compute used on devices that it has left
        self._swapped_out: set[int] = set()
        self._enforcer = enforcer or open_enforcer(tag)

    @property
    def inventory(self) -> Sequence[DeviceSpec]:
        return self._devices

    @property
    def enforcement(self) -> Enforcement:
        return self._enforcer.enforcement

    @property
    def has_own_memory(self) -> bool:
        return False

    def environment(self, sandbox: int, devices: Sequence[str], share: float, memory_bytes: int) -> dict[str, str]:
        return {}

    def host_bytes(self, memory_bytes: int) -> int:
        return memory_bytes  # a virtual device's memory is the host's

    def access(self, devices: Sequence[str]) -> DeviceAccess:
        return NO_ACCESS

    def attach(self, sandbox: int, devices: Sequence[str], pids: Sequence[int]) -> Path | None:
        try:
            host_slice = self._slices[sandbox] = self._enforcer.make(sandbox, self._virtual_device(devices))
            if (allotted := self._allotted.get(sandbox)) is not None:
                host_slice.resize(*allotted)
            host_slice.enter(pids)
        except OSError as error:
            _log.warning("a slice is not enforced", sandbox=sandbox, devices=devices, why=str(error))
            return None
        return host_slice.directory

    def _virtual_device(self, devices: Sequence[str]) -> VirtualDevice:
        which = tuple(sorted({self._core_of[name] for name in devices}))
        return VirtualDevice(",".join(devices), self._cores_each * len(devices), which)

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        self._allotted[sandbox] = Allotment(share, ceiling)
        host_slice = self._slices.get(sandbox)
        if host_slice is not None:
            try:
                host_slice.resize(share, ceiling)
            except OSError as error:
                _log.warning("a slice could not be changed", sandbox=sandbox, why=str(error))

    def swap_out(self, sandbox: int) -> bool:
        """Count its memory no longer. It is the host's, so nothing moves."""
        self._swapped_out.add(sandbox)
        return True

    def swap_in(self, sandbox: int) -> bool:
        self._swapped_out.discard(sandbox)
        return True

    def begin_move(self, sandbox: int, devices: Sequence[str]) -> DeviceMove | None:
        before = self._slices.get(sandbox)
        if before is None:
            return None
        try:
            made = self._enforcer.make(sandbox, self._virtual_device(devices))
            if (allotted := self._allotted.get(sandbox)) is not None:
                made.resize(*allotted)
        except OSError as error:
            _log.warning("a slice could not be made", sandbox=sandbox, devices=devices, why=str(error))
            return None
        return HostMove(self, sandbox, before, made)

    def arrived(self, sandbox: int, before: HostSlice, made: HostSlice) -> Path | None:
        """Count a sandbox that has moved in its new slice."""
        if self._slices.get(sandbox) is not before:  # it has ended
            made.remove()
            return None
        self._used_before[sandbox] = self._used_before.get(sandbox, 0.0) + _used(before)
        self._slices[sandbox] = made
        if (allotted := self._allotted.get(sandbox)) is not None:  # it may have changed meanwhile
            self.resize(sandbox, *allotted)
        before.remove()
        return made.directory

    def detach(self, sandbox: int) -> None:
        self._used_before.pop(sandbox, None)
        self._allotted.pop(sandbox, None)
        self._swapped_out.discard(sandbox)
        host_slice = self._slices.pop(sandbox, None)
        if host_slice is not None:
            host_slice.remove()

    def usage(self) -> list[DeviceUsage]:
        """Return the usage of each slice. Mostly the node counts the memory, which is the host's."""
        found: list[DeviceUsage] = []
        for sandbox, host_slice in self._slices.items():
            try:
                memory_bytes = 0 if sandbox in self._swapped_out else host_slice.memory_bytes()
                compute_s = host_slice.compute_s() + self._used_before.get(sandbox, 0.0)
                found.append(DeviceUsage(sandbox, compute_s, memory_bytes))
            except OSError:  # the sandbox has ended, and its control groups with it
                continue
        return found

    def fault(self, device: str) -> str | None:
        return None

    def close(self) -> None:
        for sandbox in list(self._slices):
            self.detach(sandbox)
        self._enforcer.close()
