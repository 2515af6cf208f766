"""Device memory to the host and back, by `cuda-checkpoint`, which takes one process at a time."""

from collections.abc import Sequence

import structlog

from aliquot.live.device.nvidia.checks import CHECKPOINT
from aliquot.live.device.nvidia.commands import Runner

_log = structlog.get_logger(__name__)


class Checkpoints:
    """Called from one thread, in order."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._out: dict[int, list[int]] = {}  # the pids of a sandbox whose memory is on the host

    def take_out(self, sandbox: int, pids: Sequence[int]) -> bool:
        """False: it could not, and a process whose swap has failed is not fit to go on."""
        self._out[sandbox] = list(pids)
        return all(self._toggle(sandbox, pid) for pid in pids)

    def bring_back(self, sandbox: int) -> bool:
        return all(self._toggle(sandbox, pid) for pid in self._out.pop(sandbox, ()))

    def forget(self, sandbox: int) -> None:
        self._out.pop(sandbox, None)

    def _toggle(self, sandbox: int, pid: int) -> bool:
        done = self._run([CHECKPOINT, "--toggle", "--pid", str(pid)], {})
        if not done.ok:
            _log.warning("a sandbox could not be swapped", sandbox=sandbox, pid=pid, why=done.said or done.status)
        return done.ok
