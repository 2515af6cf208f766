"""The devices of a simulation, from text such as `2` or `rtx4090:2,rtx3090:2` and a file that describes the kinds."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec
from aliquot.sim.nodes import NodeTable

MIN_VALUE, MAX_VALUE = 1e-6, 1e6  # bounds of speed and concurrency in a device file
NODES = "nodes"  # the table with the nodes, which is no kind
UNDESCRIBED_KINDS = ("gpu", CPU)  # kinds that need no table in the device file


class DeviceKind(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the device file. A missing field means the default of the command line."""

    memory: str | None = None
    concurrency: int | None = None
    bandwidth: str | None = None  # size per second, from host to device
    speed: float = 1
    price: float | None = None  # of a second of the whole device
    lanes: int | None = None  # runs that are planned on it at once
    movable: bool = False  # live sandboxes can move between two of them


def parse_devices(
    text: str, *, memory_bytes: int | None, concurrency: int, kinds: dict[str, DeviceKind] | None = None
) -> list[DeviceSpec]:
    """Parse the devices in order. They are named by kind and number, from 1 on."""
    devices: list[DeviceSpec] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:([A-Za-z][\w.-]*)\s*:\s*)?(\d+)\s*", part)
        if match is None or not int(match[2]):
            raise InputError(f"--devices: '{part}' is neither a number nor KIND:NUMBER, such as 2 or rtx4090:2")
        kind = match[1] or "gpu"
        if any(device.kind == kind for device in devices):
            raise InputError(f"--devices: kind {kind} is listed twice")
        about = (kinds or {}).get(kind, DeviceKind())
        memory = memory_bytes
        if about.memory and memory_bytes is not None:  # with unbounded memory, no kind has a bound
            memory = parse_size(about.memory, f"{kind}.memory")
        bandwidth = parse_size(about.bandwidth, f"{kind}.bandwidth") if about.bandwidth else None
        slots = about.concurrency or concurrency
        devices.extend(
            DeviceSpec(
                *(f"{kind}-{number}", kind, memory, slots, bandwidth, about.speed),
                price=about.price,
                lanes=about.lanes,
                movable=about.movable,
            )
            for number in range(1, int(match[2]) + 1)
        )
    return devices


def check_kinds(devices: Iterable[DeviceSpec], kinds: dict[str, DeviceKind]) -> None:
    """Refuse an unused table together with a kind that has no table, because one of them must be misspelt."""
    used = {device.kind: None for device in devices}
    unused = [kind for kind in kinds if kind not in used and kind != CPU]
    undescribed = [kind for kind in used if kind not in kinds and kind not in UNDESCRIBED_KINDS]
    if unused and undescribed:
        raise InputError(f"--devices: kind {undescribed[0]} is not in the device file, which has {', '.join(kinds)}")


def with_cpu(
    devices: list[DeviceSpec],
    functions: Iterable[FunctionSpec],
    *,
    concurrency: int,
    kinds: dict[str, DeviceKind] | None = None,
) -> list[DeviceSpec]:
    """Add the `cpu` device of each node if a function can use it and the node lists none."""
    if not any(function.share == 0 or CPU in function.times_by_kind for function in functions):
        return devices
    (cpu,) = parse_devices(f"{CPU}:1", memory_bytes=None, concurrency=concurrency, kinds=kinds)
    with_own = {device.node: None for device in devices if device.kind == CPU}
    without = [node for node in dict.fromkeys(device.node for device in devices) if node not in with_own]
    added = [replace(cpu, name=f"{node}/{cpu.name}" if node else cpu.name, node=node) for node in without]
    return [*devices, *added]


class DeviceFile(Struct, frozen=True):
    """The tables of a device file."""

    kinds: dict[str, DeviceKind] = {}
    nodes: dict[str, NodeTable] = {}


def price_problems(price: float | None, lanes: int | None) -> Iterator[str]:
    """Yield a text for a price or a number of lanes that no device can have."""
    if price is not None and not 0 <= price < inf:
        yield f"price is {price}; it takes the price of a second, 0 or more"
    if lanes is not None and lanes < 1:
        yield f"lanes is {lanes}; it takes 1 or more, and at most the concurrency"


def read_device_file(path: Path) -> DeviceFile:
    """Read a TOML file with a table for each kind, and a table `nodes.NAME` for each node or set of equal nodes."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: is not a TOML file: {error}") from error
    nodes = tables.pop(NODES, {})
    return DeviceFile(_kinds(path, tables), _nodes(path, nodes))


def _nodes(path: Path, tables: object) -> dict[str, NodeTable]:
    try:
        return msgspec.convert(tables, dict[str, NodeTable])
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: [{NODES}]: {error}; it takes devices, count, host_memory, bandwidth") from error


def _kinds(path: Path, tables: dict[str, Any]) -> dict[str, DeviceKind]:
    kinds = {}
    for name, table in tables.items():
        try:
            kinds[name] = msgspec.convert(table, DeviceKind)
        except msgspec.ValidationError as error:
            takes = ", ".join(DeviceKind.__struct_fields__)
            raise InputError(f"{path}: [{name}]: {error}; it takes {takes}") from error
        for key, number in (("concurrency", kinds[name].concurrency), ("speed", kinds[name].speed)):
            if number is not None and not MIN_VALUE <= number <= MAX_VALUE:
                takes = f"it takes a number from {MIN_VALUE:g} to {MAX_VALUE:g}"
                raise InputError(f"{path}: [{name}].{key} is {number}; {takes}")
        for problem in price_problems(kinds[name].price, kinds[name].lanes):
            raise InputError(f"{path}: [{name}]: {problem}")
    return kinds
