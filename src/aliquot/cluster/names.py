"""Names of nodes, and names of their devices in the scheduler.

The devices of the head keep their names. Those of a node have the node's name before them, as in `node-2/host-1`.
"""

import re

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.core.places import NODE_SEPARATOR, Place

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
HEAD = "head"  # the head's own devices in lists of nodes


def check_node_name(name: str, field: str) -> str:
    """Return the name of a node. Raises an `InputError` that names the field if it is not one."""
    if _NAME.fullmatch(name) is None or name == HEAD:
        raise InputError(
            f"{field}: '{name}' cannot be the name of a node; it takes 1 to 63 small letters, digits, '-' and '.', "
            f"and not '{HEAD}'"
        )
    return name


def scheduler_device(node: str, device: DeviceSpec) -> DeviceSpec:
    """Return a node's device as the scheduler knows it."""
    return replace(device, name=f"{node}{NODE_SEPARATOR}{device.name}", node=node, remote=True, movable=False)


def local_place(place: Place) -> Place:
    """Return a place by the names that its node has for the devices."""
    return tuple(name.rpartition(NODE_SEPARATOR)[2] for name in place)
