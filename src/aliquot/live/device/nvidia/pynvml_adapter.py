"""NVML through `pynvml` of the package nvidia-ml-py, which is imported only when GPUs are used."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aliquot.live.device.nvidia.nvml import Gpu, GpuProcess, GpuSample, MigInstance, Nvml, NvmlError

# Xids that a program causes by itself and that leave the GPU usable, from NVIDIA's catalogue of Xid errors.
XIDS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})


def open_nvml() -> Nvml:
    try:
        library = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlError("the package nvidia-ml-py is not installed: pip install 'aliquot[nvidia]'") from error
    return PynvmlAdapter(library)


class PynvmlAdapter(Nvml):
    def __init__(self, library: Any) -> None:  # noqa: ANN401 - it has no types
        self._nvml = library
        self._faults: dict[str, str] = {}  # by UUID; a GPU that has failed once stays failed
        with self._calling("NVML does not start"):
            library.nvmlInit()
        self._events: Any = None
        self._watch()

    def _watch(self) -> None:
        """Register for Xid events. GPUs without events are still checked by `fault`."""
        nvml = self._nvml
        try:
            self._events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError:
            self._events = None

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise NvmlError(f"{what}: {error}") from error

    def driver_version(self) -> str:
        with self._calling("the driver does not tell its version"):
            return str(self._nvml.nvmlSystemGetDriverVersion())

    def gpus(self) -> list[Gpu]:
        with self._calling("the GPUs cannot be listed"):
            return [self._gpu(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _gpu(self, index: int) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            mig = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
        except nvml.NVMLError_NotSupported:
            mig = False
        return Gpu(
            index,
            str(nvml.nvmlDeviceGetUUID(handle)),
            str(nvml.nvmlDeviceGetName(handle)),
            int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            int(nvml.nvmlDeviceGetMinorNumber(handle)),
            mig,
            tuple(self._instances(handle)) if mig else (),
        )

    def _instances(self, handle: Any) -> Iterator[MigInstance]:  # noqa: ANN401 - NVML's own
        nvml = self._nvml
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except nvml.NVMLError_NotFound:
                continue
            size = int(nvml.nvmlDeviceGetMemoryInfo(instance).total)
            yield MigInstance(str(nvml.nvmlDeviceGetUUID(instance)), size)

    def processes(self, uuid: str) -> list[GpuProcess]:
        with self._calling(f"the processes on {uuid} cannot be listed"):
            handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return [GpuProcess(process.pid, process.usedGpuMemory or 0) for process in found]

    def samples(self, uuid: str, since_us: int) -> list[GpuSample]:
        nvml = self._nvml
        with self._calling(f"{uuid} does not tell how busy it is"):
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            try:
                found = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
            except (nvml.NVMLError_NotFound, nvml.NVMLError_NotSupported):  # nothing new, or not supported
                return []
            except nvml.NVMLError as error:
                # Without processes the first call, for the size, succeeds, and pynvml raises NVML_SUCCESS as an error.
                if error.value == nvml.NVML_SUCCESS:
                    return []
                raise
        return [GpuSample(one.pid, one.timeStamp, one.smUtil / 100) for one in found if one.timeStamp > since_us]

    def fault(self, uuid: str) -> str | None:
        self._take_events()
        if uuid not in self._faults and (found := self._check(uuid)) is not None:
            self._faults[uuid] = found
        return self._faults.get(uuid)

    def _take_events(self) -> None:
        nvml = self._nvml
        while self._events is not None:
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
                if event.eventData not in XIDS_OF_PROGRAMS:
                    uuid = str(nvml.nvmlDeviceGetUUID(event.device))
                    self._faults.setdefault(uuid, f"the driver reported Xid {event.eventData}")
            except nvml.NVMLError_Timeout:  # there are no more events
                return
            except nvml.NVMLError:  # a GPU is lost, and the check of each GPU finds out which
                return

    def _check(self, uuid: str) -> str | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            return f"it does not answer: {error}"
        try:
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        except nvml.NVMLError:  # a GPU without ECC
            return None
        return f"its memory has had {errors} errors that could not be corrected" if errors else None

    def close(self) -> None:
        with self._calling("NVML does not end"):
            if self._events is not None:
                self._nvml.nvmlEventSetFree(self._events)
                self._events = None
            self._nvml.nvmlShutdown()
