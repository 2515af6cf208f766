"""How the driver has programs of NVIDIA's run: by their words, never through a shell."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

TIMEOUT_S = 60  # a swap moves gigabytes; a daemon that says nothing for so long says nothing


class Done(Struct, frozen=True):
    status: int
    said: str  # both streams

    @property
    def ok(self) -> bool:
        return self.status == 0


class Runner(Protocol):
    def __call__(self, words: Sequence[str], env: Mapping[str, str], given: str = "") -> Done:
        """Run to its end with these variables beside the server's own and this input. Takes a moment; never raises."""
        ...


def run(words: Sequence[str], env: Mapping[str, str], given: str = "") -> Done:
    try:
        done = subprocess.run(  # noqa: S603 - words, and the first is a program of NVIDIA's
            words,
            env={**os.environ, **env},
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Done(-1, f"it did not end within {TIMEOUT_S} s")
    except OSError as error:
        return Done(-1, f"{words[0]}: {error.strerror}")
    return Done(done.returncode, done.stdout.strip())
