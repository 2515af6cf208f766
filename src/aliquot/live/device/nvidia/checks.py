"""Checks when the server starts that the chosen way of sharing works on this machine."""

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.live.device.base import DriverContext
from aliquot.live.device.nvidia.choice import NvidiaChoice, SharingMode
from aliquot.live.device.nvidia.commands import CHECKPOINT
from aliquot.live.device.nvidia.mps import CONTROL
from aliquot.live.device.nvidia.nvml import Nvml

MIN_DRIVER_VERSION = 550  # for cuda-checkpoint
LIBRARY_VARIABLE = "ALIQUOT_HAMI_LIBRARY"
LIBRARY = "/usr/local/vgpu/libvgpu.so"  # where HAMi installs it

Which = Callable[[str], str | None]


def check_choice(
    choice: NvidiaChoice,
    context: DriverContext,
    nvml: Nvml,
    *,
    which: Which = shutil.which,
    machine: str = platform.machine(),
) -> None:
    """Raise `InputError` for the first conflict."""
    if choice.mode is SharingMode.MPS:
        _check_mps(context, which)
    if choice.mode is SharingMode.HAMI and not context.own_root:
        raise InputError(
            "--devices: nvidia:hami: HAMi-core keeps files in /tmp, so each sandbox needs its own /tmp, but mount "
            "namespaces do not work here (`aliquot doctor`); take nvidia:timeslice or nvidia:mig"
        )
    if choice.swap:
        _check_swap(choice, nvml, which, machine)


def _check_mps(context: DriverContext, which: Which) -> None:
    if which(CONTROL) is None:
        raise InputError(
            f"--devices: nvidia:mps: `{CONTROL}` is not on the PATH; it comes with the driver's compute utilities"
        )
    if context.own_uid:
        raise InputError(
            "--devices: nvidia:mps: MPS serves one user id at a time, and here each sandbox has its own; start the "
            "server as a user that is not root, or take nvidia:hami, nvidia:mig or nvidia:timeslice"
        )


def _check_swap(choice: NvidiaChoice, nvml: Nvml, which: Which, machine: str) -> None:
    if choice.mode is SharingMode.MPS:
        raise InputError(
            "--devices: nvidia:mps:swap: cuda-checkpoint is not known to take processes that compute through MPS; "
            "leave out one of the two"
        )
    if machine != "x86_64":
        raise InputError(f"--devices: nvidia:swap: cuda-checkpoint is for x86-64 alone, and this is {machine}")
    if which(CHECKPOINT) is None:
        raise InputError(f"--devices: nvidia:swap: `{CHECKPOINT}` is not on the PATH; NVIDIA gives it away by itself")
    version = nvml.driver_version()
    number = version.partition(".")[0]
    if not number.isdecimal() or int(number) < MIN_DRIVER_VERSION:
        raise InputError(
            f"--devices: nvidia:swap: cuda-checkpoint needs driver {MIN_DRIVER_VERSION} or newer, and this is {version}"
        )


def find_library(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of HAMi-core's library. Raises `InputError` when it does not exist."""
    path = Path(environment.get(LIBRARY_VARIABLE, LIBRARY))
    if not path.is_file():
        raise InputError(
            f"--devices: nvidia:hami: there is no {path}; build libvgpu.so of HAMi-core and name it in "
            f"{LIBRARY_VARIABLE}"
        )
    return path.resolve()
