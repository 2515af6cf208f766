"""Reports what each driver would enforce on this machine, for `aliquot doctor` and for the documentation."""

import os

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.live.device.base import DriverContext
from aliquot.live.device.host import HostDriver
from aliquot.live.device.nvidia.checks import check_choice, find_library
from aliquot.live.device.nvidia.choice import NVIDIA, NvidiaChoice, SharingMode
from aliquot.live.device.nvidia.inventory import targets
from aliquot.live.device.nvidia.modes import ENFORCED, SWAPPED, enforcement
from aliquot.live.device.nvidia.nvml import Nvml, NvmlError
from aliquot.live.device.records import Enforcement

_HEAD = ("driver", "compute", "memory", "swap", "changed while it runs")


_HOST = ("host", "weight and quota (control groups)", "with the sandbox's own memory", "frozen (control groups)", "yes")


_CHANGES = {
    SharingMode.MPS: "no: the next sandbox",
    SharingMode.HAMI: "no: the next sandbox",
    SharingMode.MIG: "no: an instance is as it was cut",
    SharingMode.TIMESLICE: "nothing to change",
}


_SWAPS = {SharingMode.MPS: "none: ended instead"}


class DriverReport(Struct, frozen=True):
    driver: str
    usable: bool
    detail: str
    lacking: str = ""  # limits that are not enforced


def survey_host() -> DriverReport:
    """Report on host devices. Leaves nothing behind on the machine."""
    driver = HostDriver(
        f"aliquot-doctor-{os.getpid()}", [DeviceSpec("host-1", "host")], sorted(os.sched_getaffinity(0))
    )
    kept = driver.enforcement
    driver.close()
    return DriverReport("host devices", not kept.lacking, _kept(kept), "; ".join(kept.lacking))


def survey_nvidia(nvml: Nvml, context: DriverContext) -> list[DriverReport]:
    """Report on the GPUs, and on each way of sharing them. Raises `NvmlError`."""
    gpus = nvml.gpus()
    shown = ", ".join(f"{gpu.index}: {gpu.model}, {gpu.memory_bytes / GIB:.0f} GiB" for gpu in gpus)
    faults = [f"{gpu.index}: {why}" for gpu in gpus if (why := nvml.fault(gpu.uuid)) is not None]
    reports = [DriverReport("nvidia GPUs", not faults and bool(gpus), shown or "none", "; ".join(faults))]
    for mode in SharingMode if gpus else ():
        choice = NvidiaChoice(mode=mode)
        kept = enforcement(choice)
        try:
            targets(nvml, choice)
            check_choice(choice, context, nvml)
            if mode is SharingMode.HAMI:
                find_library()
        except InputError as error:
            reports.append(DriverReport(f"{NVIDIA}:{mode}", usable=False, detail=str(error), lacking="it is refused"))
        else:
            reports.append(
                DriverReport(f"{NVIDIA}:{mode}", mode is not SharingMode.TIMESLICE, _kept(kept), _lacking(kept))
            )
    return reports


def no_nvidia(why: NvmlError) -> DriverReport:
    return DriverReport(
        "nvidia GPUs", usable=False, detail=str(why), lacking="`aliquot up --devices` takes host:N alone"
    )


def _kept(kept: Enforcement) -> str:
    return f"compute: {kept.compute}; memory: {kept.memory}; swap: {kept.swap}"


def _lacking(kept: Enforcement) -> str:
    return "; ".join(kept.lacking)


def drivers_table() -> str:
    """Return the table of drivers in docs/reference/devices.md."""
    rows = [_HEAD, ("---",) * len(_HEAD), _HOST]
    rows += [
        (f"{NVIDIA}:{mode}", *ENFORCED[mode], _SWAPS.get(mode, f"with `:swap`: {SWAPPED}"), _CHANGES[mode])
        for mode in SharingMode
    ]
    return "\n".join(f"| {' | '.join(row)} |".replace("| ---", "|---").replace("--- |", "---|") for row in rows)
