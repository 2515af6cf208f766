"""Which devices a simulation has: `2`, or `rtx4090:2,rtx3090:2` with a file that describes the kinds."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.config import parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec

MIN_VALUE, MAX_VALUE = 1e-6, 1e6
UNDESCRIBED_KINDS = ("gpu", CPU)  # kinds that need no description


class DeviceKind(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the device file: what is special about a kind of device."""

    memory: str | None = None
    concurrency: int | None = None
    bandwidth: str | None = None  # bytes per second, from host to device
    speed: float = 1


def parse_devices(
    text: str, *, memory_bytes: int | None, concurrency: int, kinds: dict[str, DeviceKind] | None = None
) -> list[DeviceSpec]:
    """The devices in order, named by kind and number from 1 on."""
    devices: list[DeviceSpec] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:([A-Za-z][\w.-]*)\s*:\s*)?(\d+)\s*", part)
        if match is None or not int(match[2]):
            raise InputError(f"--devices: '{part}' is neither a number nor KIND:NUMBER, such as 2 or rtx4090:2")
        kind = match[1] or "gpu"
        if any(device.kind == kind for device in devices):
            raise InputError(f"--devices: kind {kind} is there twice")
        about = (kinds or {}).get(kind, DeviceKind())
        memory = memory_bytes
        if about.memory and memory_bytes is not None:  # unbounded memory is unbounded on all of them
            memory = parse_size(about.memory, f"{kind}.memory")
        bandwidth = parse_size(about.bandwidth, f"{kind}.bandwidth") if about.bandwidth else None
        devices.extend(
            DeviceSpec(f"{kind}-{number}", kind, memory, about.concurrency or concurrency, bandwidth, about.speed)
            for number in range(1, int(match[2]) + 1)
        )
    return devices


def check_kinds(devices: Iterable[DeviceSpec], kinds: dict[str, DeviceKind]) -> None:
    """A table that no device uses beside a device that no table describes: one of them is misspelt."""
    used = {device.kind: None for device in devices}
    idle = [kind for kind in kinds if kind not in used and kind != CPU]
    plain = [kind for kind in used if kind not in kinds and kind not in UNDESCRIBED_KINDS]
    if idle and plain:
        raise InputError(f"--devices: kind {plain[0]} is not in the device file, which has {', '.join(kinds)}")


def with_cpu(
    devices: list[DeviceSpec],
    functions: Iterable[FunctionSpec],
    *,
    concurrency: int,
    kinds: dict[str, DeviceKind] | None = None,
) -> list[DeviceSpec]:
    """Every node has a `cpu` device too; it is listed where a function can use it."""
    wanted = any(function.share == 0 or CPU in function.times_by_kind for function in functions)
    if not wanted or any(device.kind == CPU for device in devices):
        return devices
    return [*devices, *parse_devices(f"{CPU}:1", memory_bytes=None, concurrency=concurrency, kinds=kinds)]


def read_kinds(path: Path) -> dict[str, DeviceKind]:
    """A TOML file with one table a kind: `memory`, `concurrency`, `bandwidth` (per second), `speed`."""
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
