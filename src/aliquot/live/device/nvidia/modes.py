"""The ways of sharing a GPU: the environment and the files that a sandbox needs, and what is enforced.

MPS and HAMi-core read the limits from a process's environment when it first uses the GPU. So a sandbox keeps the slice
that it began with, and a function that changes its environment before that is not limited.
"""

from collections.abc import Sequence
from math import ceil
from pathlib import Path

from aliquot.core.units import MIB
from aliquot.live.device.nvidia.choice import NvidiaChoice, SharingMode
from aliquot.live.device.nvidia.inventory import GpuTarget
from aliquot.live.device.nvidia.mps import MpsDaemon
from aliquot.live.device.records import DeviceAccess, Enforcement

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where MPS and its clients communicate
_CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_MIG_FILES = "/dev/nvidia-caps"

_NOT_RUN = "nvidia: this driver has not yet been run on hardware"
_FIXED = (
    "nvidia:{}: a sandbox keeps the compute and memory it began with; a change counts for the next one, and compute "
    "that nobody uses is not lent"
)
_TRUSTING = (
    "nvidia:{}: limits are read from a sandbox's own environment: a function that changes it before it uses the GPU is "
    "not held to them"
)
_LACKING = {
    SharingMode.MPS: (
        _FIXED.format("mps"),
        _TRUSTING.format("mps"),
        "nvidia:mps: a fault of one function on a GPU ends all that run there at that time",
        "nvidia:mps: sandboxes share the machine's /dev/shm, for MPS meets its clients there",
        "nvidia:mps: a function on several GPUs has them whole without MPS: its memory there is not bounded",
    ),
    SharingMode.HAMI: (_FIXED.format("hami"), _TRUSTING.format("hami")),
    SharingMode.MIG: (
        "nvidia:mig: an instance is used whole: a smaller share bounds nothing, and one runs there at a time",
    ),
    SharingMode.TIMESLICE: (
        "nvidia:timeslice: nothing is enforced: functions take turns on a GPU, and any may take all of its memory",
    ),
}
_NO_SWAP = "nvidia: without :swap a sandbox whose memory is wanted is ended, and the next call starts it anew"
_SWAP = "nvidia: a sandbox that holds unified memory cannot be swapped by cuda-checkpoint and is ended instead"

# How compute and memory are enforced.
ENFORCED = {
    SharingMode.MPS: ("at most its share of the multiprocessors (MPS)", "bounded (MPS)"),
    SharingMode.HAMI: ("about its share of the time (HAMi-core)", "bounded (HAMi-core)"),
    SharingMode.MIG: ("an instance is its own (MIG)", "an instance is its own (MIG)"),
    SharingMode.TIMESLICE: ("not enforced", "not enforced"),
}
SWAPPED = "copied to the host (cuda-checkpoint)"
ENDED = "none: ended instead"


def enforcement(choice: NvidiaChoice) -> Enforcement:
    lacking = (*_LACKING[choice.mode], _SWAP if choice.swap else _NO_SWAP, _NOT_RUN)
    return Enforcement(*ENFORCED[choice.mode], SWAPPED if choice.swap else ENDED, lacking)


def environment(
    mode: SharingMode,
    targets: Sequence[GpuTarget],
    daemon: MpsDaemon | None,
    cache: str,
    share: float,
    memory_bytes: int,
) -> dict[str, str]:
    """Return the variables that limit a sandbox.

    A function that asks for no device memory has no limit, since a limit of 0 would allow none. Percentages are rounded
    up to whole numbers. A sandbox with several GPUs has them whole and without MPS, whose clients have only one.
    """
    percent = str(min(100, ceil(round(share * 100, 6))))
    megabytes = -(-memory_bytes // MIB)
    env = {"CUDA_VISIBLE_DEVICES": ",".join(target.uuid for target in targets)}
    if daemon is not None:
        env |= daemon.environment
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percent
        if megabytes:
            env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={megabytes}M"  # the only GPU that it sees has index 0
    elif mode is SharingMode.HAMI:
        env["CUDA_DEVICE_SM_LIMIT"] = percent
        env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = cache
        if megabytes:
            env["CUDA_DEVICE_MEMORY_LIMIT"] = f"{megabytes}m"
    return env


def access(
    mode: SharingMode, targets: Sequence[GpuTarget], daemon: MpsDaemon | None, library: Path | None
) -> DeviceAccess:
    files: tuple[str, ...] = (*(f"/dev/nvidia{target.gpu.minor}" for target in targets), *_CONTROL_FILES)
    if daemon is not None:
        return DeviceAccess(files, writable=(SHARED_MEMORY, str(daemon.pipes), str(daemon.logs)))
    if library is not None:
        return DeviceAccess(files, visible=(str(library),), preload=str(library))
    return DeviceAccess((*files, _MIG_FILES) if mode is SharingMode.MIG else files)
