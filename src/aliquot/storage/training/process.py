"""The training's own process: it reads the log, tells of its progress on stdout, a line each, and adds a version.

Started as `python -m aliquot.storage.training.process LOG REGISTRY SETTINGS`. It takes only what nobody else wants of
the processor, and may be killed at any moment: what is on disk stays whole, and the next goes on from the last round.
"""

import os
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from aliquot.learn.registry import ModelRegistry
from aliquot.learn.settings import LearnSettings
from aliquot.learn.training import TooLittleError, TrainingProgress, train
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.training.steps import as_dated

FAILED = 1


class TrainingEnded(msgspec.Struct, frozen=True):
    """The last line: which version was made, or why none was."""

    version: int = 0
    error: str = ""


def lower_priority(settings: LearnSettings) -> None:
    """Behind everybody else."""
    os.nice(settings.niceness)
    if settings.when_idle:
        with suppress(OSError):  # not every kernel lets one
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def run(log: Path, registry: Path, settings: LearnSettings) -> TrainingEnded:
    def tell(progress: TrainingProgress) -> None:
        _say(msgspec.json.encode(progress))

    try:
        sessions = [as_dated(session) for session in read_sessions(log)]
        manifest = train(sessions, ModelRegistry(registry), settings, tell)
    except TooLittleError as error:
        return TrainingEnded(error=str(error))
    except BlockingIOError:
        return TrainingEnded(error="another training is under way")
    except (OSError, sqlite3.Error) as error:
        return TrainingEnded(error=f"{type(error).__name__}: {error}")
    return TrainingEnded(manifest.version)


def _say(line: bytes) -> None:
    """Whoever listened may have gone: then nobody wants what would come of it."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    chosen = msgspec.json.decode(sys.argv[3], type=LearnSettings)
    lower_priority(chosen)
    ended = run(Path(sys.argv[1]), Path(sys.argv[2]), chosen)
    _say(msgspec.json.encode(ended))
    sys.exit(FAILED if ended.error else 0)
