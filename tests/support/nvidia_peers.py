"""Stand-ins for what only a machine with GPUs has: NVML with a script for its answers, and a record of commands."""

import shutil
import subprocess
from pathlib import Path

from aliquot.core.units import GIB
from aliquot.live.device.base import DriverContext
from aliquot.live.device.nvidia.commands import CommandResult
from aliquot.live.device.nvidia.nvml import Gpu, MigInstance, Nvml, NvmlError

FIRST = Gpu(0, "GPU-aaaa", "RTX 4090", 24 * GIB, minor=3)
SECOND = Gpu(1, "GPU-bbbb", "RTX 3090", 24 * GIB, minor=4)
INSTANCES = MigInstance("MIG-1", 20 * GIB), MigInstance("MIG-2", 40 * GIB)
CUT = Gpu(2, "GPU-cccc", "A100", 80 * GIB, 5, mig=True, instances=INSTANCES)
CONTROL = "nvidia-cuda-mps-control"
FREE = DriverContext(own_root=True)
LIBRARY_SOURCE = Path(__file__).parent / "fake_nvml.c"


class ScriptedNvml(Nvml):
    def __init__(self, *gpus, version="570.86.10"):
        self._gpus = list(gpus)
        self._version = version
        self.running = {}
        self.sampled = {}
        self.faults = {}
        self.silent = False
        self.closed = False

    def driver_version(self):
        return self._version

    def gpus(self):
        return self._gpus

    def processes(self, uuid):
        if self.silent:
            raise NvmlError(f"the processes on {uuid} cannot be listed: GPU is lost")
        return self.running.get(uuid, [])

    def samples(self, uuid, since_us):
        return [sample for sample in self.sampled.get(uuid, []) if sample.at_us > since_us]

    def fault(self, uuid):
        return self.faults.get(uuid)

    def close(self):
        self.closed = True


class Recorder:
    """A recorder of commands that runs nothing and reports success, or the result that a test has set."""

    def __init__(self, **failing):
        self.commands = []
        self.failing = failing  # by the last word, or what was given

    def __call__(self, words, env, given=""):
        self.commands.append((*words, given.strip()) if given else tuple(words))
        self.env = dict(env)
        said = self.failing.get((given.strip() or words[-1]).replace("-", "_").strip("_"))
        return CommandResult(0, "") if said is None else CommandResult(1, said)


def compiler():
    return shutil.which("gcc") or shutil.which("cc")


def build_library(folder: Path) -> Path:
    """The folder with a fake libnvidia-ml.so.1, for LD_LIBRARY_PATH. What it answers is in fake_nvml.c."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler(), "-shared", "-fPIC", "-o", library, LIBRARY_SOURCE], check=True)
    return folder
