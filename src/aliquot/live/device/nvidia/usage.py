"""Measures what sandboxes use of a GPU: seconds of all its multiprocessors, summed from NVML's samples, and bytes.

NVML is slow and has samples only a few times a second. A thread polls it, and `usage` returns the last values.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from aliquot.live.device.nvidia.nvml import GpuProcess, GpuSample, Nvml, NvmlError
from aliquot.live.device.records import DeviceUsage

_log = structlog.get_logger(__name__)
NVML_INTERVAL_S = 0.2
_MAX_SAMPLE_US = 1_000_000  # the longest time that one sample covers
_MAX_ANCESTORS = 64  # how far a process is traced to its sandbox


def parent_of(pid: int) -> int:
    """Return the parent's pid, or 0 when the process has none or has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class SandboxProcesses:
    """Finds the sandbox of a pid: a sandbox is a process with everything that it has started."""

    def __init__(self, parent: Callable[[int], int] = parent_of) -> None:
        self._sandbox_of: dict[int, int] = {}  # by pid
        self._parent = parent

    def add(self, sandbox: int, pids: list[int]) -> None:
        self._sandbox_of.update(dict.fromkeys(pids, sandbox))

    def remove(self, sandbox: int) -> None:
        for pid in [pid for pid, owner in self._sandbox_of.items() if owner == sandbox]:
            del self._sandbox_of[pid]

    def sandbox_of(self, pid: int) -> int | None:
        """Return the sandbox to which the process belongs, or None."""
        for _ in range(_MAX_ANCESTORS):
            if pid in self._sandbox_of:
                return self._sandbox_of[pid]
            if pid <= 1:
                break
            pid = self._parent(pid)
        return None


class DeviceMeter:
    """The usage of one device by sandbox."""

    def __init__(self, uuid: str, sandbox_of: Callable[[int], int | None]) -> None:
        self.uuid = uuid
        self.since_us = 0
        self._sandbox_of = sandbox_of
        self._used: dict[int, tuple[float, int]] = {}  # seconds and bytes, by sandbox
        self._sampled_us: dict[int, int] = {}  # by pid

    def begin(self, sandbox: int) -> None:
        self._used[sandbox] = 0.0, 0

    def end(self, sandbox: int) -> None:
        self._used.pop(sandbox, None)

    def take(self, samples: Sequence[GpuSample], processes: Sequence[GpuProcess]) -> None:
        held = dict.fromkeys(self._used, 0)
        for process in processes:
            if (sandbox := self._sandbox_of(process.pid)) in held:
                held[sandbox] += process.memory_bytes
        spent = dict.fromkeys(self._used, 0.0)
        before = self.since_us
        for sample in sorted(samples, key=lambda sample: sample.at_us):
            since = self._sampled_us.get(sample.pid, before)
            lasted_us = min(sample.at_us - since, _MAX_SAMPLE_US) if since else 0
            self._sampled_us[sample.pid] = sample.at_us
            self.since_us = max(self.since_us, sample.at_us)
            if (sandbox := self._sandbox_of(sample.pid)) in spent:
                spent[sandbox] += sample.busy * lasted_us / 1e6
        oldest = self.since_us - _MAX_SAMPLE_US
        self._sampled_us = {pid: at_us for pid, at_us in self._sampled_us.items() if at_us > oldest}
        self._used = {sandbox: (self._used[sandbox][0] + spent[sandbox], held[sandbox]) for sandbox in held}

    def usage(self) -> list[DeviceUsage]:
        return [DeviceUsage(sandbox, *amounts) for sandbox, amounts in self._used.items()]


class GpuMeters:
    """The meters of all devices of the driver, by device name."""

    def __init__(self, nvml: Nvml, uuids: dict[str, str], processes: SandboxProcesses) -> None:
        self._nvml = nvml
        self._processes = processes
        self._meters = {name: DeviceMeter(uuid, processes.sandbox_of) for name, uuid in uuids.items()}
        self._devices_of: dict[int, Sequence[str]] = {}  # by sandbox
        self._lock = threading.Lock()  # not held during calls of NVML
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._poll_until_stopped, name="nvml", daemon=True)
        self._failing: set[str] = set()  # devices whose failure has been logged

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def begin(self, sandbox: int, devices: Sequence[str], pids: Sequence[int]) -> None:
        with self._lock:
            self._devices_of[sandbox] = devices
            self._processes.add(sandbox, list(pids))
            for device in devices:
                self._meters[device].begin(sandbox)

    def end(self, sandbox: int) -> None:
        with self._lock:
            devices = self._devices_of.pop(sandbox, None)
            if devices is not None:
                for device in devices:
                    self._meters[device].end(sandbox)
                self._processes.remove(sandbox)

    def pids_on_device(self, sandbox: int) -> list[int]:
        """Return the sandbox's processes that use its devices now. Blocks. Raises `NvmlError`."""
        with self._lock:
            devices = self._devices_of.get(sandbox, ())
        found = [process for device in devices for process in self._nvml.processes(self._meters[device].uuid)]
        with self._lock:
            pids = [process.pid for process in found if self._processes.sandbox_of(process.pid) == sandbox]
        return list(dict.fromkeys(pids))

    def usage(self) -> list[DeviceUsage]:
        """Return the usage of each sandbox: the sum of its memory and the mean of its compute over its devices."""
        together: dict[int, DeviceUsage] = {}
        with self._lock:
            for used in (used for meter in self._meters.values() for used in meter.usage()):
                before = together.get(used.sandbox, DeviceUsage(used.sandbox, 0.0, 0))
                part_s = used.compute_s / len(self._devices_of[used.sandbox])
                memory_bytes = (before.memory_bytes or 0) + (used.memory_bytes or 0)
                together[used.sandbox] = DeviceUsage(used.sandbox, before.compute_s + part_s, memory_bytes)
        return list(together.values())

    def look(self) -> None:
        """Poll NVML once."""
        for name, meter in self._meters.items():
            try:
                samples = self._nvml.samples(meter.uuid, meter.since_us)
                processes = self._nvml.processes(meter.uuid)
            except NvmlError as error:
                if name not in self._failing:
                    self._failing.add(name)
                    _log.warning("the usage of a GPU cannot be read", device=name, why=str(error))
                continue
            with self._lock:
                meter.take(samples, processes)

    def _poll_until_stopped(self) -> None:
        while not self._ending.wait(NVML_INTERVAL_S):
            self.look()
