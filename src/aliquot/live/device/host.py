"""`host`: virtual devices carved from this machine's cores, so that everything runs and is measured without a GPU.

A device is one core unless it is asked for more; when there are more devices than cores, each has its part of one.
"""

from collections.abc import Sequence

import structlog

from aliquot.core.interfaces import Allotment
from aliquot.core.model import DeviceSpec
from aliquot.live.device.base import NO_OPENING, Driver, Enforcement, Opening, Used
from aliquot.live.device.slice_groups import ROOT, DeviceGroups, SliceGroup

_log = structlog.get_logger(__name__)
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "freezer")


class HostDriver(Driver):
    def __init__(self, tag: str, devices: Sequence[DeviceSpec], cores: Sequence[int]) -> None:
        self._devices = tuple(devices)
        self._allotted: dict[int, Allotment] = {}
        self._groups: dict[int, SliceGroup] = {}
        self._frozen: set[int] = set()
        self._device_groups: dict[str, DeviceGroups] = {}
        self.why_not = ""
        try:
            self._carve(tag, list(cores))
        except OSError as error:
            self.why_not = f"{error.filename or ROOT}: {error.strerror}"
            self._device_groups = {}

    def _carve(self, tag: str, cores: list[int]) -> None:
        missing = [name for name in _CONTROLLERS if not (ROOT / name).is_dir()]
        if missing:
            raise FileNotFoundError(0, f"no controller {', '.join(missing)}", str(ROOT))
        count = len(self._devices)
        part = min(1.0, len(cores) / max(count, 1))
        for number, device in enumerate(self._devices):
            # From the last core down: the first is the one that most machines give to everything else.
            which = [cores[-1 - number % len(cores)]]
            self._device_groups[device.name] = DeviceGroups(tag, device.name, part, which)

    @property
    def inventory(self) -> Sequence[DeviceSpec]:
        return self._devices

    @property
    def enforcement(self) -> Enforcement:
        if self.why_not:
            why = f"slices of host devices are not enforced: {self.why_not}"
            return Enforcement("not enforced", "see the sandbox's memory", "signals", (why,))
        return Enforcement("weight and quota (cgroups v1)", "with the sandbox's own memory", "frozen (cgroups v1)")

    @property
    def has_own_memory(self) -> bool:
        return False

    def environment(self, sandbox: int, device: str, share: float, memory_bytes: int) -> dict[str, str]:
        return {}

    def host_bytes(self, memory_bytes: int) -> int:
        return memory_bytes  # a virtual device's memory is the host's

    def opening(self, device: str) -> Opening:
        return NO_OPENING

    def attach(self, sandbox: int, device: str, pids: Sequence[int]) -> None:
        groups = self._device_groups.get(device)
        if groups is None:
            return
        try:
            group = self._groups[sandbox] = groups.make(sandbox)
            if (allotted := self._allotted.get(sandbox)) is not None:
                group.resize(*allotted)
            group.enter(pids, groups.cpuset)
        except OSError as error:
            _log.warning("a slice is not enforced", sandbox=sandbox, device=device, why=str(error))

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        self._allotted[sandbox] = Allotment(share, ceiling)
        group = self._groups.get(sandbox)
        if group is not None:
            try:
                group.resize(share, ceiling)
            except OSError as error:
                _log.warning("a slice could not be changed", sandbox=sandbox, why=str(error))

    def swap_out(self, sandbox: int) -> bool:
        return self._freeze(sandbox, still=True)

    def swap_in(self, sandbox: int) -> bool:
        return self._freeze(sandbox, still=False)

    def _freeze(self, sandbox: int, *, still: bool) -> bool:
        group = self._groups.get(sandbox)
        if group is None:
            return False
        try:
            group.freeze(still=still)
            (self._frozen.add if still else self._frozen.discard)(sandbox)
        except OSError as error:  # its groups have gone with it
            _log.warning("a sandbox could not be frozen or thawed", sandbox=sandbox, why=str(error))
        return True

    def detach(self, sandbox: int) -> None:
        self._allotted.pop(sandbox, None)
        self._frozen.discard(sandbox)
        group = self._groups.pop(sandbox, None)
        if group is not None:
            group.remove()

    def used(self) -> list[Used]:
        """A virtual device's memory is the host's: the node counts it. What is swapped out has none of it."""
        found: list[Used] = []
        for sandbox, group in self._groups.items():
            try:
                found.append(Used(sandbox, group.used_s(), 0 if sandbox in self._frozen else None))
            except OSError:  # its groups have gone with it
                continue
        return found

    def complaint(self, device: str) -> str | None:
        return None

    def close(self) -> None:
        for sandbox in list(self._groups):
            self.detach(sandbox)
        for groups in self._device_groups.values():
            groups.remove()
