"""The server's settings, parsed once and frozen."""

import os
import re
import socket
from collections.abc import Callable
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from aliquot.config import PolicySettings, parse_assignments, parse_size
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.units import MIB
from aliquot.live.catalogue.images import RuntimeImage
from aliquot.live.console.settings import ConsoleSettings
from aliquot.live.device.nvidia.choice import NVIDIA, TAKES, NvidiaChoice, read_choice
from aliquot.live.device.nvidia.inventory import device_specs
from aliquot.live.device.nvidia.nvml import Nvml, NvmlError
from aliquot.live.device.nvidia.pynvml_adapter import open_nvml
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.sessions.records import SessionSettings
from aliquot.live.node.network.egress import EgressPolicy
from aliquot.live.node.network.messages import ApiAddress, RelaySettings
from aliquot.live.store.base import Retention
from aliquot.live.usage.file import DEFAULT_FILE_BYTES as USAGE_BYTES
from aliquot.storage.settings import FabricSettings

PORT = 3233  # the port of a standalone OpenWhisk
HOST_KIND = "host"
OVERCOMMIT = 2  # functions seldom use all of their memory limit, so the limits may add up to twice the machine's memory


class Tls(Struct, frozen=True):
    """The files for HTTPS."""

    certificate: Path
    key: Path


class ServerSettings(Struct, frozen=True):
    """All settings of one server."""

    data: Path
    devices: tuple[DeviceSpec, ...]
    policy: PolicySettings
    devices_asked: str = ""  # the text of `--devices` after the driver's name
    host: str = "127.0.0.1"
    port: int = PORT
    host_memory_bytes: int = 0
    tls: Tls | None = None
    console: ConsoleSettings = ConsoleSettings()
    ready_file: Path | None = None
    grace_s: float = 30  # for running calls when the server stops
    retention: Retention = Retention()
    usage_bytes: int = USAGE_BYTES  # disk space for usage samples
    result_cache_bytes: int = 256 * MIB  # memory for results of pure functions
    images: tuple[RuntimeImage, ...] = ()
    fabric: FabricSettings = FabricSettings()
    session_idle_s: float = SessionSettings().idle_s
    gateway: GatewaySettings = GatewaySettings()
    gateways: int = 1  # processes that read HTTP; 1: the server itself
    python: Path | None = None  # the interpreter of functions without requirements; None: the environment of their kind
    egress: EgressPolicy = EgressPolicy()  # which destinations functions can reach
    trace_sample: float | None = None  # the part of the usual calls whose traces are sent; None: not given

    @property
    def max_sandbox_bytes(self) -> int:
        """The largest memory limit of a sandbox: the machine's memory, or `--host-memory` if that is less."""
        return min(physical_memory(), self.host_memory_bytes)


def relay_settings(settings: ServerSettings, listener: socket.socket) -> RelaySettings:
    """Return the settings of the relay, which leads functions to the API at this socket."""
    host, port = listener.getsockname()[:2]
    any_address = ip_address(host).is_unspecified
    api = ApiAddress("127.0.0.1" if any_address else host, port, any_address)
    return RelaySettings(settings.egress, api, settings.gateway.egress_connections)


def keep(days: float, size: str) -> Retention:
    """Return the retention for both records and the journal."""
    max_bytes = parse_size(size, "--keep-size")
    return Retention(days * 86400, max_bytes, journal_s=days * 86400, journal_bytes=max_bytes)


def parse_devices(
    text: str,
    memory: str | None,
    slots: int,
    cpu_slots: int | None,
    open_gpus: Callable[[], Nvml] = open_nvml,
    *,
    bandwidth: str | None = None,
) -> tuple[DeviceSpec, ...]:
    """Parse `--devices`. `host:2` means two virtual devices on this machine. The node's `cpu` is always added."""
    kind, _, more = text.partition(":")
    if slots < 1 or (cpu_slots is not None and cpu_slots < 1):
        raise InputError("--slots and --cpu-slots: they take 1 or more")
    size = None if memory is None else parse_size(memory, "--device-memory")
    bytes_per_s = None if bandwidth is None else parse_size(bandwidth, "--device-bandwidth")
    if bytes_per_s is not None and (kind != HOST_KIND or not bytes_per_s):
        raise InputError(f"--device-bandwidth: '{bandwidth}' does not fit; it takes bytes a second of virtual devices")
    if kind == NVIDIA:
        devices = _gpus(read_choice(more), size, slots, open_gpus)
    elif kind == HOST_KIND and more.isdecimal():
        devices = _virtual(int(more), size, slots, bytes_per_s)
    else:
        raise InputError(
            f"--devices: '{text}' is not understood; it takes host:N, N virtual devices on this machine, or {TAKES}"
        )
    # Functions that only wait for others hold slots of the cpu device, too, so it has more slots than cores.
    # As many again are for tenants that hold few while others hold all.
    number = cpu_slots or max(8, 4 * (os.cpu_count() or 1))
    lanes = min(number, os.cpu_count() or 1)
    return (DeviceSpec(CPU, CPU, None, number, extra_slots=number, lanes=lanes), *devices)


def set_prices(devices: tuple[DeviceSpec, ...], texts: list[str]) -> tuple[DeviceSpec, ...]:
    """Return the devices with the prices of `--price KIND=PRICE`."""
    prices: dict[str, float] = {}
    for kind, text in parse_assignments(texts, "--price").items():
        price = float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else -1.0
        if price < 0:
            raise InputError(f"--price: '{kind}={text}' has no price; it takes a number from 0 on, as in {kind}=500")
        if all(device.kind != kind for device in devices):
            kinds = ", ".join(dict.fromkeys(device.kind for device in devices))
            raise InputError(f"--price: there is no device of the kind '{kind}'; there are {kinds}")
        prices[kind] = price
    return tuple(replace(device, price=prices.get(device.kind, device.price)) for device in devices)


def _virtual(number: int, memory_bytes: int | None, slots: int, bytes_per_s: float | None) -> list[DeviceSpec]:
    size = physical_memory() // 2 // max(number, 1) if memory_bytes is None else memory_bytes
    return [
        DeviceSpec(f"{HOST_KIND}-{index}", HOST_KIND, size, slots, bandwidth_bytes_s=bytes_per_s, movable=True)
        for index in range(1, number + 1)
    ]


def _gpus(
    choice: NvidiaChoice, memory_bytes: int | None, slots: int, open_gpus: Callable[[], Nvml]
) -> list[DeviceSpec]:
    try:
        with closing(open_gpus()) as nvml:
            return device_specs(nvml, choice, memory_bytes, slots)
    except NvmlError as error:
        raise InputError(f"--devices: {NVIDIA}: {error}") from error


def physical_memory() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
