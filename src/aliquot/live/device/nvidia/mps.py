"""The control daemons of MPS, one per GPU, each with its own pipe directory."""

import contextlib
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.live.device.nvidia.commands import CommandResult, CommandRunner

CONTROL = "nvidia-cuda-mps-control"
_MAX_PIPE_PATH_BYTES = 80  # paths of sockets in it must be shorter than 108 bytes


class MpsDaemon:
    def __init__(self, directory: Path, uuid: str, run: CommandRunner) -> None:
        """The daemon is started by `start`."""
        self.pipes = directory / "pipe"
        self.logs = directory / "log"
        self._uuid = uuid
        self._run = run

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the daemon's clients. Without them, processes use the GPU without MPS and without limits."""
        return {
            "CUDA_VISIBLE_DEVICES": self._uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
        }

    def start(self) -> None:
        """Start the daemon, and end one that a killed server left. Blocks. Raises `InputError`."""
        if len(str(self.pipes)) > _MAX_PIPE_PATH_BYTES:
            raise InputError(
                f"--data: {self.pipes} is too long for the sockets of MPS; give a data folder with a shorter path"
            )
        for directory in (self.pipes, self.logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(self.pipes.iterdir()):
            self._tell("quit -t 1")
        done = self._run([CONTROL, "-d"], self.environment)
        if not done.ok:
            raise InputError(f"--devices: nvidia:mps: the control daemon does not start: {done.output or done.status}")
        if (why := self.fault()) is not None:
            raise InputError(f"--devices: nvidia:mps: {why}")

    def fault(self) -> str | None:
        """Return why the daemon does not answer, or None. Without a daemon, clients run without limits."""
        done = self._tell("get_server_list")
        return None if done.ok else f"the control daemon of MPS does not answer: {done.output or done.status}"

    def stop(self) -> None:
        """End the daemon. Blocks."""
        self._tell("quit -t 1")
        for directory in (self.pipes, self.logs, self.pipes.parent):
            with contextlib.suppress(OSError):  # a directory with logs is kept
                directory.rmdir()

    def _tell(self, command: str) -> CommandResult:
        return self._run([CONTROL], self.environment, command + "\n")
