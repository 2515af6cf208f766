"""The nodes of a simulation, from the tables `[nodes.NAME]` of a device file, and when they are lost."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, NodeSpec

MAX_NODES = 100_000


class NodeTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One table `[nodes.NAME]` of the device file."""

    devices: str  # as `--devices`
    count: int = 1  # so many equal nodes, named NAME-1, NAME-2 and so on if there are several
    host_memory: str | None = None  # for all its sandboxes together
    bandwidth: str | None = None  # size per second, from the origins of datasets


class NodeLoss(Struct, frozen=True):
    """A node that is lost at some time of the simulation."""

    at_s: float
    node: str


def make_nodes(
    tables: Mapping[str, NodeTable], parse: Callable[[str], Sequence[DeviceSpec]]
) -> tuple[list[NodeSpec], list[DeviceSpec]]:
    """Return the nodes and their devices, which are named `NODE/KIND-NUMBER`. `parse` reads a list of devices."""
    nodes: list[NodeSpec] = []
    devices: list[DeviceSpec] = []
    for key, table in tables.items():
        if not 1 <= table.count <= MAX_NODES:
            raise InputError(f"[nodes.{key}].count is {table.count}; it takes a number from 1 to {MAX_NODES}")
        memory = parse_size(table.host_memory, f"[nodes.{key}].host_memory") if table.host_memory else None
        bandwidth = parse_size(table.bandwidth, f"[nodes.{key}].bandwidth") if table.bandwidth else None
        listed = parse(table.devices)
        for number in range(1, table.count + 1):
            name = key if table.count == 1 else f"{key}-{number}"
            nodes.append(NodeSpec(name, memory, bandwidth))
            devices += [replace(device, name=f"{name}/{device.name}", node=name) for device in listed]
    names = [node.name for node in nodes]
    if len(dict.fromkeys(names)) < len(names):
        raise InputError(f"[nodes]: two nodes have one name; there are {', '.join(tables)}")
    return nodes, devices


def parse_losses(texts: Iterable[str], nodes: Sequence[NodeSpec]) -> list[NodeLoss]:
    """Parse texts such as `node-1@60`, in order of time."""
    known = {node.name: None for node in nodes}
    losses: list[NodeLoss] = []
    for text in texts:
        name, _, at = text.rpartition("@")
        try:
            at_s = float(at)
        except ValueError:
            at_s = -1.0
        if not name or not 0 <= at_s < float("inf"):
            raise InputError(f"--lose: '{text}' is not of the form NODE@SECONDS, such as node-1@60")
        if name not in known:
            there = (
                f"there are {', '.join([*known][:8])}" if known else "there are none without [nodes] in --device-spec"
            )
            raise InputError(f"--lose: there is no node '{name}'; {there}")
        if any(loss.node == name for loss in losses):
            raise InputError(f"--lose: node {name} is lost twice")
        losses.append(NodeLoss(at_s, name))
    return sorted(losses, key=lambda loss: loss.at_s)
