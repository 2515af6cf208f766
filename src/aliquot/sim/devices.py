"""The devices of a simulation, from text such as `2` or `rtx4090:2,rtx3090:2` and a file that describes the kinds."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec

MIN_VALUE, MAX_VALUE = 1e-6, 1e6  # bounds of speed and concurrency in a device file
UNDESCRIBED_KINDS = ("gpu", CPU)  # kinds that need no table in the device file


class DeviceKind(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the device file. A missing field means the default of the command line."""

    memory: str | None = None
    concurrency: int | None = None
    bandwidth: str | None = None  # size per second, from host to device
    speed: float = 1


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
        devices.extend(
            DeviceSpec(f"{kind}-{number}", kind, memory, about.concurrency or concurrency, bandwidth, about.speed)
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
    """Add the node's `cpu` device if a function can use it and it is not listed yet."""
    wanted = any(function.share == 0 or CPU in function.times_by_kind for function in functions)
    if not wanted or any(device.kind == CPU for device in devices):
        return devices
    return [*devices, *parse_devices(f"{CPU}:1", memory_bytes=None, concurrency=concurrency, kinds=kinds)]


def read_kinds(path: Path) -> dict[str, DeviceKind]:
    """Read a TOML file with one table per kind: `memory`, `concurrency`, `bandwidth` (per second), `speed`."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: is not a TOML file: {error}") from error
    kinds = {}
    for name, table in tables.items():
        try:
            kinds[name] = msgspec.convert(table, DeviceKind)
        except msgspec.ValidationError as error:
            raise InputError(f"{path}: [{name}]: {error}; it takes memory, concurrency, bandwidth, speed") from error
        for key, number in (("concurrency", kinds[name].concurrency), ("speed", kinds[name].speed)):
            if number is not None and not MIN_VALUE <= number <= MAX_VALUE:
                takes = f"it takes a number from {MIN_VALUE:g} to {MAX_VALUE:g}"
                raise InputError(f"{path}: [{name}].{key} is {number}; {takes}")
    return kinds
