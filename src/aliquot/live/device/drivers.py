"""All devices of a node behind one face: which driver a device belongs to, and which device a sandbox is on."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot.core.model import DeviceSpec
from aliquot.live.device.base import Driver, Enforcement, Used
from aliquot.live.device.counter import Counter
from aliquot.live.device.host import HostDriver

Make = Callable[[str, Sequence[DeviceSpec]], Driver]


def _host(tag: str, devices: Sequence[DeviceSpec]) -> Driver:
    return HostDriver(tag, devices, sorted(os.sched_getaffinity(0)))


DRIVERS: dict[str, Make] = {
    "host": _host,
}


class Drivers:
    """`cpu` is nobody's: what runs there has no slice."""

    def __init__(self, tag: str, devices: Sequence[DeviceSpec]) -> None:
        """`tag` is the node's own on this machine. Takes a moment."""
        self._by_kind: dict[str, Driver] = {}
        self._kind_of = {device.name: device.kind for device in devices}
        self._device_of: dict[int, str] = {}  # by sandbox
        self._memory: dict[int, Counter] = {}  # by sandbox, where somebody counts it
        self._early: dict[int, tuple[float, float]] = {}  # slices of sandboxes that are not placed yet
        for kind, make in DRIVERS.items():
            mine = [device for device in devices if device.kind == kind]
            if mine:
                self._by_kind[kind] = make(tag, mine)

    @property
    def enforcement(self) -> dict[str, Enforcement]:
        return {kind: driver.enforcement for kind, driver in self._by_kind.items()}

    def place(self, sandbox: int, device: str) -> None:
        """The sandbox will be on that device."""
        slice_ = self._early.pop(sandbox, None)
        driver = self._by_kind.get(self._kind_of.get(device, ""))
        if driver is not None:
            self._device_of[sandbox] = device
            if slice_ is not None:
                driver.resize(sandbox, *slice_)

    def attach(self, sandbox: int, pids: Sequence[int], memory: Path | None = None) -> None:
        """`memory`: where the bytes are counted that the sandbox holds of the host's."""
        if (driver := self._of(sandbox)) is not None:
            driver.attach(sandbox, self._device_of[sandbox], pids)
            if memory is not None:
                with contextlib.suppress(OSError):  # it has gone already
                    self._memory[sandbox] = Counter(memory)

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        driver = self._of(sandbox)
        if driver is None:
            self._early[sandbox] = (share, ceiling)
        else:
            driver.resize(sandbox, share, ceiling)

    def swap_out(self, sandbox: int) -> bool:
        driver = self._of(sandbox)
        return driver is not None and driver.swap_out(sandbox)

    def swap_in(self, sandbox: int) -> bool:
        driver = self._of(sandbox)
        return driver is not None and driver.swap_in(sandbox)

    def detach(self, sandbox: int) -> None:
        self._early.pop(sandbox, None)
        if (driver := self._of(sandbox)) is not None:
            driver.detach(sandbox)
            del self._device_of[sandbox]
            if (counter := self._memory.pop(sandbox, None)) is not None:
                counter.close()

    def used(self) -> list[Used]:
        """Microseconds: see `Driver.used`."""
        return [self._with_memory(used) for driver in self._by_kind.values() for used in driver.used()]

    def _with_memory(self, used: Used) -> Used:
        counter = self._memory.get(used.sandbox) if used.memory_bytes is None else None
        if counter is not None:
            with contextlib.suppress(OSError):  # its group is gone, and it will be in a moment
                return Used(used.sandbox, used.compute_s, counter.read())
        return used

    def close(self) -> None:
        for driver in self._by_kind.values():
            driver.close()
        for counter in self._memory.values():
            counter.close()
        self._memory.clear()

    def _of(self, sandbox: int) -> Driver | None:
        device = self._device_of.get(sandbox)
        return None if device is None else self._by_kind[self._kind_of[device]]
