"""Runs NVIDIA's programs, without a shell, and swaps device memory with `cuda-checkpoint`."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog
from msgspec import Struct

_log = structlog.get_logger(__name__)
CHECKPOINT = "cuda-checkpoint"
COMMAND_TIMEOUT_S = 60  # a swap moves gigabytes


class CommandResult(Struct, frozen=True):
    status: int
    output: str  # both streams

    @property
    def ok(self) -> bool:
        return self.status == 0


class CommandRunner(Protocol):
    def __call__(self, words: Sequence[str], env: Mapping[str, str], given: str = "") -> CommandResult:
        """Run a program with these variables, beside the server's own, and this input. Blocks, and never raises."""
        ...


def run(words: Sequence[str], env: Mapping[str, str], given: str = "") -> CommandResult:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the program is NVIDIA's
            words,
            env={**os.environ, **env},
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CommandResult(-1, f"it did not end within {COMMAND_TIMEOUT_S} s")
    except OSError as error:
        return CommandResult(-1, f"{words[0]}: {error.strerror}")
    return CommandResult(done.returncode, done.stdout.strip())


class CudaCheckpoints:
    """Moves device memory to the host and back, one process at a time. It is called from one thread."""

    def __init__(self, run: CommandRunner) -> None:
        self._run = run
        self._out: dict[int, list[int]] = {}  # pids by sandbox, while its memory is on the host

    def take_out(self, sandbox: int, pids: Sequence[int]) -> bool:
        """Copy the memory to the host. After False, the processes cannot continue."""
        self._out[sandbox] = list(pids)
        return all(self._toggle(sandbox, pid) for pid in pids)

    def bring_back(self, sandbox: int) -> bool:
        return all(self._toggle(sandbox, pid) for pid in self._out.pop(sandbox, ()))

    def forget(self, sandbox: int) -> None:
        self._out.pop(sandbox, None)

    def _toggle(self, sandbox: int, pid: int) -> bool:
        done = self._run([CHECKPOINT, "--toggle", "--pid", str(pid)], {})
        if not done.ok:
            _log.warning("a sandbox could not be swapped", sandbox=sandbox, pid=pid, why=done.output or done.status)
        return done.ok
