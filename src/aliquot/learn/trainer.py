"""Run trainings in a separate process, one at a time, and follow their progress."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from aliquot.clock import now_ms
from aliquot.learn.progress import TrainingEnded, TrainingProgress, TrainingState
from aliquot.learn.settings import LearnSettings

_STOP_TIMEOUT_S = 2.0
_INTERRUPTED = TrainingEnded(error="it ended before it was done")
_log = structlog.get_logger(__name__)


class Trainer:
    """Starts `python -m MODULE SOURCE REGISTRY SETTINGS`. Thread-safe.

    `on_end` is called on the thread that follows the process.
    """

    def __init__(self, module: str, source: Path, registry: Path, on_end: Callable[[TrainingState], None]) -> None:
        self._module = module
        self._source = source
        self._registry = registry
        self._on_end = on_end
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self.last: TrainingState | None = None

    def start(self, settings: LearnSettings) -> bool:
        """Start a training and return True, or return False if one is running."""
        with self._lock:
            if self._process is not None or self._closed:
                return False
            encoded = msgspec.json.encode(settings).decode()
            command = [sys.executable, "-m", self._module, str(self._source), str(self._registry), encoded]
            threads = str(settings.threads)
            limits = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}
            process = self._process = subprocess.Popen(  # noqa: S603 - our own
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **limits}
            )
            self.last = TrainingState(True, "reading what was recorded", 0.0, now_ms())
            self._thread = threading.Thread(target=self._follow, args=(process,), name="aliquot-training", daemon=True)
            self._thread.start()
            return True

    def close(self) -> None:
        """Stop a running training."""
        with self._lock:
            self._closed = True
            process, thread = self._process, self._thread
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if thread is not None:
            thread.join()

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        stderr_lines: list[bytes] = []
        listener = threading.Thread(target=lambda: stderr_lines.extend(process.stderr or ()), daemon=True)
        listener.start()
        ended = _INTERRUPTED
        with process:
            for line in process.stdout:
                try:
                    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                    if "what" in fields:
                        self._note(msgspec.json.decode(line, type=TrainingProgress))
                    else:
                        ended = msgspec.json.decode(line, type=TrainingEnded)
                except msgspec.DecodeError:
                    stderr_lines.append(line)
            listener.join()
        if stderr_lines and ended == _INTERRUPTED:  # the last line of a traceback names the error
            ended = TrainingEnded(error=f"{_INTERRUPTED.error}: {stderr_lines[-1].decode(errors='replace').strip()}")
        if ended.error and stderr_lines:
            _log.warning(
                "training failed", error=ended.error, output=b"".join(stderr_lines[-5:]).decode(errors="replace")
            )
        self._end(ended)

    def _note(self, progress: TrainingProgress) -> None:
        with self._lock:
            if self.last is not None:
                curve = (*self.last.curve, progress.point) if progress.point is not None else self.last.curve
                self.last = msgspec.structs.replace(self.last, what=progress.what, done=progress.done, curve=curve)

    def _end(self, ended: TrainingEnded) -> None:
        """Load the new version before the training is reported as ended."""
        with self._lock:
            assert self.last is not None  # noqa: S101 - it has started
            last = msgspec.structs.replace(self.last, running=False, version=ended.version, error=ended.error)
            closed = self._closed
        if not closed:
            self._on_end(last)
        with self._lock:
            self._process = None
            self.last = last
