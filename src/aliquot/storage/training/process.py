"""The training process: read the log, print progress to stdout as JSON lines, and add a version.

It is started as `python -m aliquot.storage.training.process LOG REGISTRY SETTINGS`, with a low priority. It may be
killed at any moment: the files on disk stay valid, and the next training resumes after the last finished round.
"""

import os
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from aliquot.learn.registry import ModelRegistry
from aliquot.learn.settings import LearnSettings
from aliquot.learn.training import TooFewSessionsError, TrainingProgress, train
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.training.steps import as_dated

FAILED = 1


class TrainingEnded(msgspec.Struct, frozen=True):
    """The last line of output: the new version, or the reason why there is none."""

    version: int = 0
    error: str = ""


def lower_priority(settings: LearnSettings) -> None:
    """Run at the lowest priority."""
    os.nice(settings.niceness)
    if settings.when_idle:
        with suppress(OSError):  # not every kernel permits it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def run(log: Path, registry: Path, settings: LearnSettings) -> TrainingEnded:
    """Train a version from the log, and print the progress."""

    def print_progress(progress: TrainingProgress) -> None:
        _print_line(msgspec.json.encode(progress))

    try:
        sessions = [as_dated(session) for session in read_sessions(log)]
        manifest = train(sessions, ModelRegistry(registry), settings, print_progress)
    except TooFewSessionsError as error:
        return TrainingEnded(error=str(error))
    except BlockingIOError:
        return TrainingEnded(error="another training is running")
    except (OSError, sqlite3.Error) as error:
        return TrainingEnded(error=f"{type(error).__name__}: {error}")
    return TrainingEnded(manifest.version)


def _print_line(line: bytes) -> None:
    """Print a line. If the agent has ended, the broken pipe ends the training as well."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    chosen = msgspec.json.decode(sys.argv[3], type=LearnSettings)
    lower_priority(chosen)
    ended = run(Path(sys.argv[1]), Path(sys.argv[2]), chosen)
    _print_line(msgspec.json.encode(ended))
    sys.exit(FAILED if ended.error else 0)
