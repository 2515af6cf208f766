"""`host`: virtual devices carved from this machine's cores, so that everything runs and is measured without a GPU.

A device is one core; when there are more devices than cores, each has its part of one. A sandbox that holds several has
the cores of all of them.
"""

from collections.abc import Sequence
from pathlib import Path

import structlog

from aliquot.core.interfaces import Allotment
from aliquot.core.model import DeviceSpec
from aliquot.live.device.base import Driver
from aliquot.live.device.records import NO_ACCESS, DeviceAccess, DeviceUsage, Enforcement
from aliquot.live.device.slices import SliceEnforcer, open_enforcer
from aliquot.live.device.slices.base import HostSlice, VirtualDevice

_log = structlog.get_logger(__name__)


class HostDriver(Driver):
    def __init__(
        self, tag: str, devices: Sequence[DeviceSpec], cores: Sequence[int], parts: SliceEnforcer | None = None
    ) -> None:
        self._devices = tuple(devices)
        self._part = min(1.0, len(cores) / max(len(devices), 1))
        # From the last core down: the first is the one that most machines give to everything else.
        self._core_of = {device.name: cores[-1 - number % len(cores)] for number, device in enumerate(devices)}
        self._allotted: dict[int, Allotment] = {}
        self._made: dict[int, HostSlice] = {}
        self._frozen: set[int] = set()
        self._parts = parts or open_enforcer(tag)

    @property
    def inventory(self) -> Sequence[DeviceSpec]:
        return self._devices

    @property
    def enforcement(self) -> Enforcement:
        return self._parts.enforcement

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
            part = self._made[sandbox] = self._parts.make(sandbox, self._carved(devices))
            if (allotted := self._allotted.get(sandbox)) is not None:
                part.resize(*allotted)
            part.enter(pids)
        except OSError as error:
            _log.warning("a slice is not enforced", sandbox=sandbox, devices=devices, why=str(error))
            return None
        return part.directory

    def _carved(self, devices: Sequence[str]) -> VirtualDevice:
        which = tuple(sorted({self._core_of[name] for name in devices}))
        return VirtualDevice(",".join(devices), self._part * len(devices), which)

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        self._allotted[sandbox] = Allotment(share, ceiling)
        part = self._made.get(sandbox)
        if part is not None:
            try:
                part.resize(share, ceiling)
            except OSError as error:
                _log.warning("a slice could not be changed", sandbox=sandbox, why=str(error))

    def swap_out(self, sandbox: int) -> bool:
        return self._freeze(sandbox, still=True)

    def swap_in(self, sandbox: int) -> bool:
        return self._freeze(sandbox, still=False)

    def _freeze(self, sandbox: int, *, still: bool) -> bool:
        part = self._made.get(sandbox)
        if part is None:
            return False
        (self._frozen.add if still else self._frozen.discard)(sandbox)
        try:
            return part.freeze(still=still)
        except OSError as error:  # its groups have gone with it
            _log.warning("a sandbox could not be frozen or thawed", sandbox=sandbox, why=str(error))
        return True

    def detach(self, sandbox: int) -> None:
        self._allotted.pop(sandbox, None)
        self._frozen.discard(sandbox)
        part = self._made.pop(sandbox, None)
        if part is not None:
            part.remove()

    def usage(self) -> list[DeviceUsage]:
        """A virtual device's memory is the host's: mostly the node counts it. What is swapped out has none of it."""
        found: list[DeviceUsage] = []
        for sandbox, part in self._made.items():
            try:
                found.append(DeviceUsage(sandbox, part.used_s(), 0 if sandbox in self._frozen else part.held_bytes()))
            except OSError:  # its groups have gone with it
                continue
        return found

    def fault(self, device: str) -> str | None:
        return None

    def close(self) -> None:
        for sandbox in list(self._made):
            self.detach(sandbox)
        self._parts.close()
