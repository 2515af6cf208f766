"""An index of the devices, so that a decision need not look at all of them.

Devices that differ only in their names and nodes form a class. Whether a function could run on a device is decided once
for its class. Up to `MAX_CANDIDATES` devices a decision looks at each of them, and nothing else is kept here. With more
devices each class lists its devices by free compute, and each node lists its idle devices of each kind for functions
that take several whole ones. A decision then looks at a few devices of each class, however many there are.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from aliquot.core.datasets import Datasets
from aliquot.core.fit import misfit_on
from aliquot.core.model import DeviceSpec, FunctionSpec

if TYPE_CHECKING:
    from aliquot.core.device import Device

MAX_CANDIDATES = 64  # devices, or places with idle sandboxes, that a decision looks at
MAX_COMPARED = 8  # of those that have room, the number whose costs are compared when there are many
LEVELS = 64  # steps in which free compute is counted
_ROUNDING = 1e-6  # in steps, so that sums of shares such as 1/3 count as the whole that they are


def level_for(share: float) -> int:
    """Return the lowest level whose devices can have this share free."""
    return 1 + int(share * LEVELS + _ROUNDING)


class DeviceClass:
    """Devices that differ only in their names and nodes, by free compute while they are listed."""

    __slots__ = ("devices", "filled", "free", "host_limit", "key", "levels", "slots", "spec", "taken")

    def __init__(self, key: tuple[DeviceSpec, int]) -> None:
        self.key = key
        self.spec = key[0]  # without a name and a node
        self.host_limit: int | None = 0  # the most memory that a host of them has had
        self.devices: dict[int, Device] = {}
        self.free = 0  # listed devices with a free slot
        self.slots = 0  # of the listed devices
        self.taken = 0.0  # slots taken on them, or their equivalent in compute if that is more
        # By level, the device that has been there longest first. An OrderedDict finds its first entry in O(1) after
        # any number of removals, which a dict does not.
        self.levels: dict[int, OrderedDict[int, Device]] = {}
        self.filled = 0  # bit n is set if level n has devices

    def could_run(self, function: FunctionSpec) -> bool:
        """Return whether its devices could ever run the function."""
        return misfit_on(function, self.spec) is None and (
            self.host_limit is None or function.host_bytes <= self.host_limit
        )

    def list(self, device: "Device") -> None:
        """Begin to keep the device's free compute up to date."""
        self.slots += device.slots
        self.update(device)

    def unlist(self, device: "Device") -> None:
        """Forget the device's free compute."""
        self._move(device, 0)
        self.slots -= device.slots
        self.taken -= device.taken
        device.taken = 0.0
        if not self.slots:
            self.taken = 0.0

    def update(self, device: "Device") -> None:
        """Move the device to the level of its free compute, after a run began or ended there."""
        level = 0 if device.running >= device.slots else level_for(max(0.0, 1 - device.shares_used))
        if level != device.level:
            self._move(device, level)
        taken = max(device.running, device.shares_used * device.slots)
        self.taken += taken - device.taken
        device.taken = taken

    def emptiest(self, lowest: int = 1) -> "Iterator[Device]":
        """Iterate over the devices with a free slot from this level on, those with the most free compute first."""
        filled = self.filled >> lowest << lowest
        while filled:
            level = filled.bit_length() - 1
            yield from self.levels[level].values()
            filled ^= 1 << level

    def fullest(self, lowest: int = 1) -> "Iterator[Device]":
        """Iterate over the devices with a free slot from this level on, those with the least free compute first."""
        filled = self.filled >> lowest << lowest
        while filled:
            first = filled & -filled
            yield from self.levels[first.bit_length() - 1].values()
            filled ^= first

    def _move(self, device: "Device", level: int) -> None:
        before = device.level
        if before:
            left = self.levels[before]
            del left[device.index]
            if not left:
                self.filled ^= 1 << before
        if level:
            entered = self.levels.setdefault(level, OrderedDict())
            entered[device.index] = device
            self.filled |= 1 << level
        self.free += bool(level) - bool(before)
        device.level = level


class DeviceGroup:
    """The devices of one kind on one node, from which a function takes several whole ones."""

    __slots__ = ("devices", "idle", "kind", "node")

    def __init__(self, node: str, kind: str) -> None:
        self.node = node
        self.kind = kind
        self.devices: dict[int, Device] = {}
        self.idle: OrderedDict[int, Device] = OrderedDict()  # listed devices on which nothing runs

    def first_idle(self, count: int) -> "Iterator[Device]":
        """Iterate over so many of the devices on which nothing runs."""
        return islice(self.idle.values(), count)


class DeviceIndex:
    """The devices that may get work, by class, and by node and kind."""

    def __init__(self) -> None:
        self.datasets = Datasets()
        self.classes: dict[tuple[DeviceSpec, int], DeviceClass] = {}
        self.groups: dict[tuple[str, str], DeviceGroup] = {}
        self.nodes: dict[str, int] = {}  # number of devices on each node
        self.listed = False  # whether there are so many that free compute is kept up to date
        self._count = 0
        self._by_idle: dict[tuple[str, int], OrderedDict[str, DeviceGroup]] = {}  # by kind and number of idle devices

    def add(self, device: "Device") -> bool:
        """Add a device that may get work, and return whether more functions may fit on its class than before."""
        limit = device.host.limit
        # Hosts with about as much memory are alike. Otherwise each node would have classes of its own.
        key = (device.spec.class_spec, 0 if limit is None else limit.bit_length())
        found = self.classes.get(key)
        own = device.device_class = self.classes[key] = DeviceClass(key) if found is None else found
        grown = limit is not None and own.host_limit is not None and limit > own.host_limit
        own.host_limit = None if limit is None else max(limit, own.host_limit or 0)
        own.devices[device.index] = device
        place = (device.spec.node, device.spec.kind)
        device.group = self.groups.setdefault(place, DeviceGroup(*place))
        device.group.devices[device.index] = device
        self.nodes[device.spec.node] = self.nodes.get(device.spec.node, 0) + 1
        self._count += 1
        if self.listed:
            self._list(device)
        return found is None or grown

    def remove(self, device: "Device") -> bool:
        """Remove a device that may get no more work, and return whether it was the last of its class."""
        own, group = device.device_class, device.group
        if self.listed:
            self._unlist(device)
        del own.devices[device.index], group.devices[device.index]
        self.nodes[group.node] -= 1
        if not self.nodes[group.node]:
            del self.nodes[group.node]
        self._count -= 1
        if not group.devices:
            del self.groups[group.node, group.kind]
        if not own.devices:
            del self.classes[own.key]
        return not own.devices

    def host_limit(self) -> int | None:
        """Return the most memory that a host of the devices has, or None if one has no limit."""
        limits = [own.host_limit for own in self.classes.values()]
        return None if None in limits else max((limit for limit in limits if limit is not None), default=None)

    def relist(self) -> None:
        """Begin or stop to list the devices, after some were added or removed."""
        if self.listed == (self._count > MAX_CANDIDATES):
            return
        self.listed = not self.listed
        for own in self.classes.values():
            for device in own.devices.values():
                if self.listed:
                    self._list(device)
                else:
                    self._unlist(device)

    def update(self, device: "Device") -> None:
        """Record that a run began or ended on a listed device."""
        device.device_class.update(device)
        idle = not device.running
        if idle != (device.index in device.group.idle):
            self._set_idle(device, idle=idle)

    def groups_with(self, kind: str, idle: int) -> Iterator[DeviceGroup]:
        """Iterate over the groups of a kind with at least so many idle devices, those with the fewest first."""
        for count in range(idle, max((count for known, count in self._by_idle if known == kind), default=0) + 1):
            yield from self._by_idle.get((kind, count), {}).values()

    def _list(self, device: "Device") -> None:
        device.listed = self
        device.device_class.list(device)
        self._set_idle(device, idle=not device.running)

    def _unlist(self, device: "Device") -> None:
        device.listed = None
        device.device_class.unlist(device)
        self._set_idle(device, idle=False)

    def _set_idle(self, device: "Device", *, idle: bool) -> None:
        group = device.group
        before = len(group.idle)
        if idle:
            group.idle[device.index] = device
        else:
            group.idle.pop(device.index, None)
        if len(group.idle) == before:
            return
        if before:
            known = self._by_idle[group.kind, before]
            del known[group.node]
            if not known:
                del self._by_idle[group.kind, before]
        if group.idle:
            self._by_idle.setdefault((group.kind, len(group.idle)), OrderedDict())[group.node] = group
