"""What a program says on its standard error, read as it comes: one that nobody listens to would wait for ever."""

import subprocess
from threading import Thread
from typing import IO

MAX_STDERR_LINES = 100
MAX_STDERR_LINE_BYTES = 4096
STDERR_TIMEOUT_S = 5.0


class StderrReader:
    """The first lines are kept; the rest is heard and forgotten."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        said, process.stderr = process.stderr, None  # it is closed here, once all is heard
        self._kept: list[bytes] = []
        self._thread = Thread(target=self._hear, args=(said,), name="complaints", daemon=True)
        self._thread.start()

    def all(self) -> bytes:
        """When the program has ended."""
        self._thread.join(STDERR_TIMEOUT_S)  # a shell that it started may be left, and has nothing to say about it
        return b"".join(self._kept)

    def _hear(self, said: IO[bytes]) -> None:
        with said:
            while line := said.readline(MAX_STDERR_LINE_BYTES):
                if len(self._kept) < MAX_STDERR_LINES:
                    self._kept.append(line)
