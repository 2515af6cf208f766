"""The devices for a choice of GPUs: one per GPU, or one per MIG instance."""

from collections.abc import Iterator

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.live.device.nvidia.choice import NVIDIA, NvidiaChoice, SharingMode
from aliquot.live.device.nvidia.nvml import Gpu, Nvml


class GpuTarget(Struct, frozen=True):
    """The GPU or MIG instance behind a device's name."""

    name: str
    uuid: str  # of the GPU or of the MIG instance
    gpu: Gpu
    memory_bytes: int


def targets(nvml: Nvml, choice: NvidiaChoice) -> list[GpuTarget]:
    """Return the targets of a choice. Raises `InputError` for missing GPUs, and `NvmlError` when NVML fails."""
    gpus = {gpu.index: gpu for gpu in nvml.gpus()}
    if not gpus:
        raise InputError("--devices: nvidia: this machine's driver knows no GPU")
    missing = [index for index in choice.indices if index not in gpus]
    if missing:
        there = ", ".join(map(str, gpus))
        raise InputError(f"--devices: nvidia: there is no GPU {', '.join(map(str, missing))}; there are {there}")
    return [target for index in choice.indices or gpus for target in _of(gpus[index], choice.mode)]


def _of(gpu: Gpu, mode: SharingMode) -> Iterator[GpuTarget]:
    name = f"{NVIDIA}-{gpu.index}"
    if mode is not SharingMode.MIG:
        if gpu.mig:
            raise InputError(
                f"--devices: nvidia:{mode}: GPU {gpu.index} is cut into instances by MIG; take nvidia:mig, name other "
                "GPUs as in nvidia:1, or switch MIG off there"
            )
        yield GpuTarget(name, gpu.uuid, gpu, gpu.memory_bytes)
        return
    if not gpu.instances:
        why = "has no instances" if gpu.mig else "does not have MIG switched on"
        raise InputError(
            f"--devices: nvidia:mig: GPU {gpu.index} {why}; make some with nvidia-smi, or take another way of sharing"
        )
    for number, instance in enumerate(gpu.instances):
        yield GpuTarget(f"{name}-mig-{number}", instance.uuid, gpu, instance.memory_bytes)


def device_specs(nvml: Nvml, choice: NvidiaChoice, memory_bytes: int | None, slots: int) -> list[DeviceSpec]:
    """Return the devices for the core. `memory_bytes` limits the memory that is used of each."""
    specs = []
    for target in targets(nvml, choice):
        if memory_bytes is not None and memory_bytes > target.memory_bytes:
            raise InputError(
                f"--device-memory: {target.name} has {target.memory_bytes} bytes; more could only be unified memory, "
                "which no way of sharing bounds and cuda-checkpoint cannot take"
            )
        # A MIG instance cannot be divided, so one sandbox runs there at a time. CUDA shows a process only one instance.
        mig, size = choice.mode is SharingMode.MIG, memory_bytes or target.memory_bytes
        specs.append(DeviceSpec(target.name, NVIDIA, size, 1 if mig else slots, alone=mig))
    return specs
