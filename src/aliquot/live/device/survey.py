"""What each driver would enforce on this machine, and what it would not: for `aliquot doctor`."""

import os

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.live.device.base import Enforcement
from aliquot.live.device.host import HostDriver
from aliquot.live.device.nvidia.checks import check, find_library
from aliquot.live.device.nvidia.choice import NVIDIA, Choice, Mode
from aliquot.live.device.nvidia.inventory import targets
from aliquot.live.device.nvidia.modes import enforcement
from aliquot.live.device.nvidia.nvml import Nvml, NvmlError
from aliquot.live.device.surroundings import Surroundings


class Standing(Struct, frozen=True):
    driver: str
    usable: bool
    detail: str
    lacking: str = ""  # what nobody is held to


def survey_host() -> Standing:
    """Leaves nothing behind."""
    driver = HostDriver(
        f"aliquot-doctor-{os.getpid()}", [DeviceSpec("host-1", "host")], sorted(os.sched_getaffinity(0))
    )
    kept = driver.enforcement
    driver.close()
    return Standing("host devices", not kept.lacking, _kept(kept), "; ".join(kept.lacking))


def survey_nvidia(nvml: Nvml, surroundings: Surroundings) -> list[Standing]:
    """The GPUs, and each way of sharing them. Raises `NvmlError`."""
    gpus = nvml.gpus()
    shown = ", ".join(f"{gpu.index}: {gpu.model}, {gpu.memory_bytes / GIB:.0f} GiB" for gpu in gpus)
    faults = [f"{gpu.index}: {why}" for gpu in gpus if (why := nvml.fault(gpu.uuid)) is not None]
    standings = [Standing("nvidia GPUs", not faults and bool(gpus), shown or "none", "; ".join(faults))]
    for mode in Mode if gpus else ():
        choice = Choice(mode=mode)
        kept = enforcement(choice)
        try:
            targets(nvml, choice)
            check(choice, surroundings, nvml)
            if mode is Mode.HAMI:
                find_library()
        except InputError as error:
            standings.append(Standing(f"{NVIDIA}:{mode}", usable=False, detail=str(error), lacking="it is refused"))
        else:
            standings.append(Standing(f"{NVIDIA}:{mode}", mode is not Mode.TIMESLICE, _kept(kept), _lacking(kept)))
    return standings


def no_nvidia(why: NvmlError) -> Standing:
    return Standing("nvidia GPUs", usable=False, detail=str(why), lacking="`aliquot up --devices` takes host:N alone")


def _kept(kept: Enforcement) -> str:
    return f"compute: {kept.compute}; memory: {kept.memory}; swap: {kept.swap}"


def _lacking(kept: Enforcement) -> str:
    return "; ".join(kept.lacking)
