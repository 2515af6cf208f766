"""Elastic devices of a simulation: they come some time after they are wanted, and leave when they are idle."""

from collections.abc import Sequence

from msgspec import Struct

from aliquot.core.clock import after
from aliquot.core.commands import WantDevices
from aliquot.core.errors import InputError
from aliquot.core.events import DeviceAdded, DeviceLost, Event
from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.scheduler import Scheduler
from aliquot.sim.event_queue import EventQueue


class ElasticSettings(Struct, frozen=True):
    """The kind of devices whose number follows the demand. The scenario lists as many as there can be."""

    kind: str
    least: int  # that are always there
    delay_s: float = 60.0  # from the wish to the device


class ElasticDevices:
    """Adds and removes the devices of one kind as the core wants them."""

    def __init__(self, settings: ElasticSettings | None, devices: Sequence[DeviceSpec], queue: EventQueue) -> None:
        self._settings = settings
        self._queue = queue
        own = [device for device in devices if settings is not None and device.kind == settings.kind]
        least = 0 if settings is None else settings.least
        self._away = own[least:]  # in the order in which they come
        self._coming: dict[str, DeviceSpec] = {}
        self._there = {device.name: device for device in own[:least]}
        self._target = least
        self._since = 0.0
        self.device_s = 0.0  # of the devices of the kind that were there

    def starts_with(self, device: DeviceSpec) -> bool:
        """Return whether a device is there from the beginning."""
        return device not in self._away

    def want(self, command: WantDevices, now: float) -> None:
        """Order devices that are missing. Those that are too many leave when they are idle."""
        settings = self._settings
        if settings is None or command.kind != settings.kind:
            return
        most = len(self._away) + len(self._coming) + len(self._there)
        self._target = min(max(command.count, settings.least), most)
        while len(self._coming) + len(self._there) < self._target:
            device = self._away.pop(0)
            self._coming[device.name] = device
            self._queue.add(after(now, settings.delay_s), DeviceAdded(device))

    def before_step(self, events: Sequence[Event], now: float) -> None:
        """Count the devices that come with this step."""
        for event in events:
            if type(event) is DeviceAdded and (device := self._coming.pop(event.device.name, None)) is not None:
                self._count(now)
                self._there[device.name] = device

    def after_step(self, scheduler: Scheduler, now: float) -> None:
        """Remove idle devices that are not wanted any more, the last ones first."""
        surplus = len(self._coming) + len(self._there) - self._target
        for name in list(reversed(self._there)) if surplus > 0 else ():
            found = scheduler.registry.devices.get(name)
            if surplus and found is not None and not found.running and (found.plan is None or found.plan.empty):
                self._count(now)
                self._away.insert(0, self._there.pop(name))
                self._queue.add(now, DeviceLost(name))
                surplus -= 1

    def finish(self, now: float) -> None:
        """Count the devices up to the end."""
        self._count(now)

    def _count(self, now: float) -> None:
        self.device_s += len(self._there) * (now - self._since)
        self._since = now


def parse_elastic(text: str | None, delay_s: float, devices: Sequence[DeviceSpec]) -> ElasticSettings | None:
    """Parse KIND=LEAST, such as gpu=1. The devices of the scenario are the most that there can be."""
    if text is None:
        return None
    kind, _, least = text.partition("=")
    most = sum(device.kind == kind for device in devices)
    if not least.isdecimal() or not most or kind == CPU or int(least) > most:
        kinds = ", ".join(dict.fromkeys(device.kind for device in devices if device.kind != CPU))
        raise InputError(
            f"--elastic: {text} does not fit; it takes KIND=LEAST with one of the kinds {kinds}, and at most "
            "as many as --devices lists"
        )
    if any(device.node for device in devices):
        raise InputError("--elastic: devices of [nodes] come and go with their nodes; list them with --devices")
    return ElasticSettings(kind, int(least), delay_s)
