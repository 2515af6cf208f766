"""Functions that take several whole devices: all of them at once or none, of one kind, each idle.

A policy chooses the first device, as it does for everybody; the others are found here. Whoever has some devices idle
and waits for one more holds none of them back: it is the queueing policies that let nobody run ahead of a flow for
ever, and so they do not let those that take parts of devices run ahead of one that takes whole ones.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from aliquot.core.model import DeviceSpec

if TYPE_CHECKING:
    from aliquot.core.view import DeviceView, FlowView

SEPARATOR = ","  # between the names of devices that one sandbox holds

D = TypeVar("D", bound="DeviceView")


def gather(flow: "FlowView", first: D, devices: Iterable[D], fits: Callable[["FlowView", D], bool]) -> tuple[D, ...]:
    """Those beside the first that would make up what the flow takes; fewer when there are not enough now.

    Where nobody has to be swapped out comes first.
    """
    memory_bytes = flow.spec.memory_bytes
    found = [
        device
        for device in devices
        if device.index != first.index and device.spec.kind == first.spec.kind and fits(flow, device)
    ]
    found.sort(key=lambda device: (device.free_bytes < memory_bytes, device.index))
    return tuple(found[: flow.spec.device_count - 1])


def joined(devices: Sequence[DeviceSpec]) -> str:
    return SEPARATOR.join(device.name for device in devices)


def parted(names: str) -> list[str]:
    """The devices of a sandbox, as a command names them."""
    return names.split(SEPARATOR)
