"""One control daemon of MPS for each GPU, each with a pipe directory of its own."""

import contextlib
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.live.device.nvidia.commands import CommandResult, CommandRunner

CONTROL = "nvidia-cuda-mps-control"
_MAX_PIPE_PATH_BYTES = 80  # of a pipe directory: sockets in it must have names of fewer than 108 bytes


class MpsDaemon:
    def __init__(self, directory: Path, uuid: str, run: CommandRunner) -> None:
        """Nothing runs yet."""
        self.pipes = directory / "pipe"
        self.logs = directory / "log"
        self._uuid = uuid
        self._run = run

    @property
    def environment(self) -> dict[str, str]:
        """For the daemon's clients; without it they would compute beside it, unbounded."""
        return {
            "CUDA_VISIBLE_DEVICES": self._uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
        }

    def start(self) -> None:
        """Takes a moment. One that a killed server left is ended first: its limits are nobody's."""
        if len(str(self.pipes)) > _MAX_PIPE_PATH_BYTES:
            raise InputError(
                f"--data: {self.pipes} is too long a name for the sockets of MPS; give a folder with a shorter one"
            )
        for directory in (self.pipes, self.logs):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(self.pipes.iterdir()):
            self._tell("quit -t 1")
        done = self._run([CONTROL, "-d"], self.environment)
        if not done.ok:
            raise InputError(f"--devices: nvidia:mps: the control daemon does not start: {done.said or done.status}")
        if (why := self.fault()) is not None:
            raise InputError(f"--devices: nvidia:mps: {why}")

    def fault(self) -> str | None:
        """A client that finds no daemon runs without MPS, and so without its limits: that must not go unseen."""
        done = self._tell("get_server_list")
        return None if done.ok else f"the control daemon of MPS does not answer: {done.said or done.status}"

    def stop(self) -> None:
        """Takes a moment."""
        self._tell("quit -t 1")
        for directory in (self.pipes, self.logs, self.pipes.parent):
            with contextlib.suppress(OSError):  # the logs stay, for whoever asks why
                directory.rmdir()

    def _tell(self, command: str) -> CommandResult:
        return self._run([CONTROL], self.environment, command + "\n")
