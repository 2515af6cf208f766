"""The driver of NVIDIA's GPUs. It has not yet run on hardware."""

from collections.abc import Sequence
from pathlib import Path

import structlog

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.live.device.base import DeviceMove, Driver, DriverContext
from aliquot.live.device.nvidia import modes
from aliquot.live.device.nvidia.checks import check_choice, find_library
from aliquot.live.device.nvidia.choice import NvidiaChoice, SharingMode, read_choice
from aliquot.live.device.nvidia.commands import CommandRunner, CudaCheckpoints, run
from aliquot.live.device.nvidia.inventory import GpuTarget, targets
from aliquot.live.device.nvidia.mps import MpsDaemon
from aliquot.live.device.nvidia.nvml import Nvml, NvmlError
from aliquot.live.device.nvidia.pynvml_adapter import open_nvml
from aliquot.live.device.nvidia.usage import GpuMeters, SandboxProcesses
from aliquot.live.device.records import DeviceAccess, DeviceUsage, Enforcement

_log = structlog.get_logger(__name__)


def make_driver(tag: str, devices: Sequence[DeviceSpec], context: DriverContext) -> Driver:
    choice = read_choice(context.options)
    try:
        nvml = open_nvml()
        check_choice(choice, context, nvml)
        library = find_library() if choice.mode is SharingMode.HAMI else None
        driver = NvidiaDriver(tag, devices, choice, context.data, nvml, run, library)
    except NvmlError as error:
        raise InputError(f"--devices: nvidia: {error}") from error
    driver.meters.start()
    return driver


class NvidiaDriver(Driver):
    def __init__(
        self,
        tag: str,
        devices: Sequence[DeviceSpec],
        choice: NvidiaChoice,
        data: Path,
        nvml: Nvml,
        run: CommandRunner,
        library: Path | None = None,
        processes: SandboxProcesses | None = None,
    ) -> None:
        """Start the daemons that the choice needs. Blocks. Raises `InputError` when a device has failed."""
        self._tag = tag
        self._devices = tuple(devices)
        self._choice = choice
        self._nvml = nvml
        self._library = library
        known = {target.name: target for target in targets(nvml, choice)}
        self._targets: dict[str, GpuTarget] = {device.name: known[device.name] for device in devices}
        uuids = {name: target.uuid for name, target in self._targets.items()}
        self.meters = GpuMeters(nvml, uuids, processes or SandboxProcesses())
        self._checkpoints = CudaCheckpoints(run) if choice.swap else None
        self._daemons: dict[str, MpsDaemon] = {}
        try:
            self._start(data, run)
        except InputError:
            self.close()
            raise

    def _start(self, data: Path, run: CommandRunner) -> None:
        for name, target in self._targets.items():
            if (why := self._nvml.fault(target.gpu.uuid)) is not None:
                raise InputError(f"--devices: {name} is not fit for use: {why}; name other GPUs, as in nvidia:1")
            if self._choice.mode is SharingMode.MPS:
                daemon = MpsDaemon(data / "mps" / name, target.uuid, run)
                daemon.start()
                self._daemons[name] = daemon

    @property
    def inventory(self) -> Sequence[DeviceSpec]:
        return self._devices

    @property
    def enforcement(self) -> Enforcement:
        return modes.enforcement(self._choice)

    @property
    def has_own_memory(self) -> bool:
        return True

    def environment(self, sandbox: int, devices: Sequence[str], share: float, memory_bytes: int) -> dict[str, str]:
        cache = f"/tmp/{self._tag}-{sandbox}.vgpu"  # noqa: S108 - in the sandbox's own /tmp
        targets = [self._targets[device] for device in devices]
        return modes.environment(self._choice.mode, targets, self._daemon(devices), cache, share, memory_bytes)

    def _daemon(self, devices: Sequence[str]) -> MpsDaemon | None:
        return self._daemons.get(devices[0]) if len(devices) == 1 else None

    def host_bytes(self, memory_bytes: int) -> int:
        return memory_bytes if self._choice.swap else 0  # cuda-checkpoint copies it into the process's memory

    def access(self, devices: Sequence[str]) -> DeviceAccess:
        targets = [self._targets[device] for device in devices]
        return modes.access(self._choice.mode, targets, self._daemon(devices), self._library)

    def attach(self, sandbox: int, devices: Sequence[str], pids: Sequence[int]) -> None:
        self.meters.begin(sandbox, devices, pids)

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        """Do nothing: no way of sharing can change the limits of a running process, as `enforcement` reports."""

    def swap_out(self, sandbox: int) -> bool:
        if self._checkpoints is None:
            return False
        try:
            return self._checkpoints.take_out(sandbox, self.meters.pids_on_device(sandbox))
        except NvmlError as error:
            _log.warning("a sandbox could not be swapped", sandbox=sandbox, why=str(error))
            return False

    def swap_in(self, sandbox: int) -> bool:
        return self._checkpoints is not None and self._checkpoints.bring_back(sandbox)

    def begin_move(self, sandbox: int, devices: Sequence[str]) -> DeviceMove | None:
        """Return None: the memory of a process stays on its GPU."""
        return None

    def detach(self, sandbox: int) -> None:
        self.meters.end(sandbox)
        if self._checkpoints is not None:
            self._checkpoints.forget(sandbox)

    def usage(self) -> list[DeviceUsage]:
        return self.meters.usage()

    def fault(self, device: str) -> str | None:
        try:
            why = self._nvml.fault(self._targets[device].gpu.uuid)
        except NvmlError as error:
            why = str(error)
        daemon = self._daemons.get(device)
        return why if why is not None or daemon is None else daemon.fault()

    def close(self) -> None:
        self.meters.stop()
        for daemon in self._daemons.values():
            daemon.stop()
        self._daemons.clear()
        try:
            self._nvml.close()
        except NvmlError as error:
            _log.warning("NVML did not end well", why=str(error))
