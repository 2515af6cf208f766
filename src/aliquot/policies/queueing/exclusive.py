"""Exclusive, from the thesis: one queue per client, and each client has devices of its own.

Devices are split evenly between the clients. If there are more clients than devices, clients share one. A call without
a named tenant belongs to its function's client, because in the thesis a client has one model. With `rebalance`, a
device moves to the fullest queue when that is more than 150 % as full as another queue that has more than one device.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import TypeAlias

from aliquot.core.device_index import MAX_CANDIDATES, MAX_COMPARED, DeviceClass
from aliquot.core.interfaces import Choice, Params, Queueing, RandomSource
from aliquot.core.model import DEFAULT_TENANT
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.arrival_order import ArrivalOrder
from aliquot.policies.queueing.parts.placement import least_recent

Client: TypeAlias = tuple[str, str]


class ExclusiveParams(Params, frozen=True):
    rebalance: bool = False
    threshold: float = 1.5  # how many times as full one queue may be as another


class ClientGroup:
    """Clients that share devices, mostly just one."""

    def __init__(self) -> None:
        self.order = ArrivalOrder()
        self.queued = 0
        self.devices: list[DeviceView] = []
        # By class, freed devices first and those just dispatched to last. It is used among many devices.
        self.classes: dict[DeviceClass, OrderedDict[int, DeviceView]] = {}

    def add(self, device: DeviceView) -> None:
        insort(self.devices, device, key=lambda each: each.index)
        self.classes.setdefault(device.device_class, OrderedDict())[device.index] = device

    def remove(self, device: DeviceView) -> None:
        self.devices.remove(device)
        del self.classes[device.device_class][device.index]

    def used(self, device: DeviceView, *, last: bool) -> None:
        """Look at the device after the others of its class, or before them."""
        self.classes[device.device_class].move_to_end(device.index, last=last)

    def to_look_at(self, flow: FlowView, view: View) -> Sequence[DeviceView]:
        """Return its devices, or among many devices a few of each class that can run the flow."""
        if not view.many:
            return self.devices
        count = max(1, MAX_COMPARED // max(1, len(flow.classes)))
        own = [devices for each in flow.classes[:MAX_CANDIDATES] if (devices := self.classes.get(each))]
        return [device for devices in own for device in islice(devices.values(), count)]


class Exclusive(Queueing):
    params_type = ExclusiveParams

    def __init__(self, params: ExclusiveParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._rebalance = params.rebalance
        self._threshold = params.threshold
        self._clients: dict[Client, int] = {}  # number of flows of each client
        self._groups: list[ClientGroup] = []
        self._group_of: dict[Client, ClientGroup] = {}
        self._owner: dict[int, ClientGroup] = {}  # by device

    def opened(self, flow: FlowView, view: View) -> None:
        client = _client(flow)
        self._clients[client] = self._clients.get(client, 0) + 1
        if self._clients[client] == 1:
            self._split(view)

    def closed(self, flow: FlowView, view: View) -> None:
        client = _client(flow)
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]
            self._split(view)

    def devices_changed(self, view: View) -> None:
        self._split(view)

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        group = self._group_of[_client(flow)]
        group.order.push(flow, invocation.number)
        group.queued += 1
        if self._rebalance:
            self._move_device()

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._group_of[_client(flow)].queued -= 1

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        self._group_of[_client(flow)].queued -= 1
        if device.index in self._owner:  # an adopted call may run on a device that gets no work
            self._owner[device.index].used(device, last=True)

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        for device in invocation.devices:
            if device.index in self._owner:  # it may be gone
                self._owner[device.index].used(device, last=False)

    def choose(self, view: View) -> Choice | None:
        heads = [(flow, group) for group in self._groups if (flow := group.order.first()) is not None]
        reserved: dict[int, None] = {}  # devices that an older call from another group waits for
        for flow, group in sorted(heads, key=lambda head: head[0].head.number):
            devices: Sequence[DeviceView] = group.to_look_at(flow, view)
            guest = flow.spec.device_count > 1 or not any(group.classes.get(own) for own in flow.classes)
            if guest:  # too large for its own devices, so it may use others
                devices = [device for device in view.candidates(flow) if view.could_hold(flow, device)]
            place = least_recent(view, flow, [device for device in devices if device.index not in reserved])
            if place is not None:
                return Choice(flow, *place, f"client {_client(flow)[1]}, {'a guest' if guest else 'its own device'}")
            if guest:
                reserved.update((device.index, None) for device in devices)
        return None

    def _split(self, view: View) -> None:
        """Assign devices evenly to clients, in order, and queued invocations to their clients' groups."""
        entries = sorted((entry for group in self._groups for entry in group.order), key=lambda entry: entry[0])
        count = max(1, min(len(self._clients), len(view.devices)))
        self._groups = [ClientGroup() for _ in range(count)]
        self._owner = {}
        self._group_of = {client: self._groups[place % count] for place, client in enumerate(self._clients)}
        for place, device in enumerate(view.devices):
            self._give(device, self._groups[place * count // len(view.devices)])
        seen: dict[int, FlowView] = {}
        for number, flow in entries:
            if flow.queued:
                self._group_of[_client(flow)].order.push(flow, number)
                seen[flow.index] = flow
        for flow in seen.values():
            self._group_of[_client(flow)].queued += flow.queued

    def _move_device(self) -> None:
        fullest = max(self._groups, key=lambda group: group.queued)
        donors = [group for group in self._groups if group is not fullest and len(group.devices) > 1]
        if not donors:
            return
        emptiest = min(donors, key=lambda group: group.queued)
        if fullest.queued > self._threshold * max(emptiest.queued, 1):
            device = min(emptiest.devices, key=lambda device: (device.running, device.last_dispatch, device.index))
            emptiest.remove(device)
            self._give(device, fullest)

    def _give(self, device: DeviceView, group: ClientGroup) -> None:
        group.add(device)
        self._owner[device.index] = group


def _client(flow: FlowView) -> Client:
    return ("function", flow.key.function) if flow.key.tenant == DEFAULT_TENANT else ("tenant", flow.key.tenant)
