"""Places: the devices that one sandbox is on.

A place is a tuple of device names. Most functions take one device or a part of one. A function with a whole-number
share above 1 takes that many whole devices of one kind on one node, all at once.

A queueing policy chooses the first device of a place, and this module finds the others. A flow that waits for one more
idle device does not reserve the devices that are idle already. The queueing policies bound how far other flows may run
ahead of it instead, so flows that take parts of devices cannot starve it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aliquot.core.model import CPU, DeviceSpec

if TYPE_CHECKING:
    from aliquot.core.view import DeviceView, FlowView

Place: TypeAlias = tuple[str, ...]  # names of the devices, the first chosen by the policy
NODE_SEPARATOR = "/"  # between a node and its device, as in `node-2/cpu`; devices of the head have no node
SEPARATOR = ","  # between device names in records, environment variables and tables

D = TypeVar("D", bound="DeviceView")


def place_of(devices: Sequence[DeviceSpec]) -> Place:
    """Return the place that consists of these devices."""
    return tuple(device.name for device in devices)


def is_cpu(place: Place) -> bool:
    """Return whether the place is the `cpu` device of a node."""
    return place[0].rpartition(NODE_SEPARATOR)[2] == CPU


def node_of(place: Place) -> str:
    """Return the name of the node that has the place, or an empty text for the head's own devices."""
    return place[0].rpartition(NODE_SEPARATOR)[0]


def place_text(place: Place) -> str:
    """Return the place as one text, such as `gpu-1,gpu-2`, for records and tables."""
    return SEPARATOR.join(place)


def other_devices(
    flow: "FlowView", first: D, devices: Iterable[D], fits: Callable[["FlowView", D], bool]
) -> tuple[D, ...]:
    """Return the devices that complete the flow's place after `first`, or fewer when too few fit now.

    They are of the kind and on the node of the first. Devices on which nothing has to be swapped out come first.
    """
    others = flow.spec.device_count - 1
    if not others:
        return ()
    memory_bytes, spec = flow.spec.memory_bytes, first.spec
    found = [
        device
        for device in devices
        if device.index != first.index
        and device.spec.kind == spec.kind
        and device.spec.node == spec.node
        and fits(flow, device)
    ]
    found.sort(key=lambda device: (device.free_bytes < memory_bytes, device.index))
    return tuple(found[:others])
