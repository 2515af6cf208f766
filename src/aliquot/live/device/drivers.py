"""All device drivers of a node: they are looked up by device, or by the sandbox on the device."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.places import Place
from aliquot.live.device.base import DEFAULT_CONTEXT, DeviceMove, Driver, DriverContext
from aliquot.live.device.cgroup_files import KernelCounter
from aliquot.live.device.host import HostDriver
from aliquot.live.device.nvidia.driver import make_driver
from aliquot.live.device.records import NO_ACCESS, DeviceAccess, DeviceUsage, Enforcement
from aliquot.live.device.tenant_cpu import NOT_DIVIDED, TenantCpu

Make = Callable[[str, Sequence[DeviceSpec], DriverContext], Driver]


def _host(tag: str, devices: Sequence[DeviceSpec], _context: DriverContext) -> Driver:
    return HostDriver(tag, devices, sorted(os.sched_getaffinity(0)))


DRIVERS: dict[str, Make] = {
    "host": _host,
    "nvidia": make_driver,
}
DEVICE_CHECK_INTERVAL_S = 5


class Drivers:
    """The drivers by kind of device. The device `cpu` has no driver, and sandboxes there have no slice.

    Sandboxes that have no slice of the host's processors share them by tenant (`tenant_cpu.py`).
    """

    def __init__(
        self,
        tag: str,
        devices: Sequence[DeviceSpec],
        context: DriverContext = DEFAULT_CONTEXT,
        tenants: TenantCpu | None = None,
    ) -> None:
        """Open the drivers. Blocks. `tag` is unique on the machine. Raises `InputError` for conflicting options."""
        self._by_kind: dict[str, Driver] = {}
        self._kind_of = {device.name: device.kind for device in devices}
        self._bytes_per_s = {device.name: device.bandwidth_bytes_s or 0 for device in devices}
        self._devices_of: dict[int, Place] = {}  # by sandbox
        self._tenant_of: dict[int, str] = {}  # by sandbox
        self._tenants = tenants or TenantCpu(tag, usable=False)
        self._memory: dict[int, tuple[KernelCounter, DeviceUsage | None]] = {}  # by sandbox, with the last usage
        try:
            for kind, make in DRIVERS.items():
                mine = [device for device in devices if device.kind == kind]
                if mine:
                    self._by_kind[kind] = make(tag, mine, context)
        except BaseException:
            self.close()  # the control groups that were made
            raise

    @property
    def enforcement(self) -> dict[str, Enforcement]:
        return {kind: driver.enforcement for kind, driver in self._by_kind.items()}

    def enforces(self, place: Place) -> bool:
        """Return whether the compute of slices is enforced there."""
        driver = self._on(place)
        return driver is not None and driver.enforcement.enforces_compute

    @property
    def lacking(self) -> tuple[str, ...]:
        """The limits that are not enforced, one line each."""
        lines = [line for enforcement in self.enforcement.values() for line in enforcement.lacking]
        return (*lines, NOT_DIVIDED.format(self._tenants.why_not)) if self._tenants.why_not else tuple(lines)

    def slices_processors(self, place: Place) -> bool:
        """Return whether the slices of these devices divide the host's processors."""
        driver = self._on(place)
        return driver is not None and not driver.has_own_memory

    def bytes_per_s(self, place: Place) -> float:
        """Return the limit on loads to a virtual device, or 0 if there is none."""
        return min((self._bytes_per_s.get(name, 0) for name in place), default=0)

    def set_weight(self, tenant: str, weight: float) -> None:
        """Set the weight of a tenant's sandboxes on the host's processors."""
        self._tenants.set_weight(tenant, weight)

    def place(self, sandbox: int, place: Place, tenant: str = "") -> None:
        """Record which devices the sandbox will be on."""
        self._tenant_of[sandbox] = tenant
        if self._on(place) is not None:
            self._devices_of[sandbox] = place

    def has_own_memory(self, place: Place) -> bool:
        driver = self._on(place)
        return driver is not None and driver.has_own_memory

    def environment(self, sandbox: int, share: float, memory_bytes: int) -> dict[str, str]:
        """Return the variables that a placed sandbox needs for its devices."""
        driver = self._of(sandbox)
        return {} if driver is None else driver.environment(sandbox, self._devices_of[sandbox], share, memory_bytes)

    def host_bytes(self, place: Place, memory_bytes: int) -> int:
        driver = self._on(place)
        return 0 if driver is None else driver.host_bytes(memory_bytes) * len(place)

    def access(self, place: Place) -> DeviceAccess:
        driver = self._on(place)
        return NO_ACCESS if driver is None else driver.access(place)

    def open_group(self, sandbox: int) -> int | None:
        """Return a descriptor through which the sandbox's process enters its CPU group itself, or None.

        Whether it has done so is left to `attach`, which may come later then.
        """
        if self.slices_processors(self._devices_of.get(sandbox, (CPU,))):
            return None
        return self._tenants.open_group(sandbox, self._tenant_of[sandbox])

    def attach(self, sandbox: int, pids: Sequence[int]) -> Path | None:
        """Attach the sandbox's processes. Return their control group if they had to leave their own."""
        driver = self._of(sandbox)
        directory = None if driver is None else driver.attach(sandbox, self._devices_of[sandbox], pids)
        if not self.slices_processors(self._devices_of.get(sandbox, (CPU,))):
            directory = self._tenants.attach(sandbox, self._tenant_of[sandbox], pids)
        return directory

    def count_memory(self, sandbox: int, file: Path) -> None:
        """Read the sandbox's host memory from this file for `usage`."""
        if self._of(sandbox) is not None:
            with contextlib.suppress(OSError):  # the sandbox has ended already
                self._memory[sandbox] = (KernelCounter(file), None)

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        driver = self._of(sandbox)
        if driver is not None:  # a sandbox whose start has failed has no device
            driver.resize(sandbox, share, ceiling)

    def swap_out(self, sandbox: int) -> bool:
        driver = self._of(sandbox)
        return driver is not None and driver.swap_out(sandbox)

    def swap_in(self, sandbox: int) -> bool:
        driver = self._of(sandbox)
        return driver is not None and driver.swap_in(sandbox)

    def begin_move(self, sandbox: int, place: Place) -> DeviceMove | None:
        """Begin to move a sandbox to a place of the same kind, or return None if its driver cannot."""
        driver = self._of(sandbox)
        return None if driver is None or driver is not self._on(place) else driver.begin_move(sandbox, place)

    def moved(self, sandbox: int, place: Place) -> None:
        """Record that a sandbox has moved, and count its memory anew."""
        self._devices_of[sandbox] = place
        if (counted := self._memory.pop(sandbox, None)) is not None:
            counted[0].close()

    def detach(self, sandbox: int) -> None:
        self._tenant_of.pop(sandbox, None)
        self._tenants.detach(sandbox)
        if (driver := self._of(sandbox)) is not None:
            driver.detach(sandbox)
            del self._devices_of[sandbox]
            if (counted := self._memory.pop(sandbox, None)) is not None:
                counted[0].close()

    def faults(self) -> dict[str, str]:
        """Return the reason for each device that has failed. Blocks, so it is called from a thread."""
        found = {
            device.name: driver.fault(device.name) for driver in self._by_kind.values() for device in driver.inventory
        }
        return {device: why for device, why in found.items() if why is not None}

    def usage(self) -> list[DeviceUsage]:
        """Return the usage of all sandboxes with a slice. Takes microseconds."""
        return [self._with_memory(used) for driver in self._by_kind.values() for used in driver.usage()]

    def _with_memory(self, used: DeviceUsage) -> DeviceUsage:
        """Add the memory. It is not read again if the sandbox has not run since, which saves half of the cost."""
        counted = self._memory.get(used.sandbox) if used.memory_bytes is None else None
        if counted is None:
            return used
        counter, before = counted
        if before is not None and before.compute_s == used.compute_s:
            return before
        try:
            used = DeviceUsage(used.sandbox, used.compute_s, counter.read())
        except OSError:  # its control group is gone, so it is about to end
            return used
        self._memory[used.sandbox] = (counter, used)
        return used

    def close(self) -> None:
        self._tenants.close()
        for driver in self._by_kind.values():
            driver.close()
        for counter, _ in self._memory.values():
            counter.close()
        self._memory.clear()

    def _on(self, place: Place) -> Driver | None:
        """Return the driver of a place, whose devices are all of one kind."""
        return self._by_kind.get(self._kind_of.get(place[0], ""))

    def _of(self, sandbox: int) -> Driver | None:
        devices = self._devices_of.get(sandbox)
        return None if devices is None else self._by_kind[self._kind_of[devices[0]]]


async def watch_devices(faults: Callable[[], dict[str, str]], lost: Callable[[str, str], None]) -> None:
    """Check the devices regularly until cancelled. `faults` runs in a thread, `lost` is called once per device."""
    loop = asyncio.get_running_loop()
    reported: set[str] = set()
    while True:
        await asyncio.sleep(DEVICE_CHECK_INTERVAL_S)
        for device, why in (await loop.run_in_executor(None, faults)).items():
            if device not in reported:
                reported.add(device)
                lost(device, why)
