"""The training process: read the log, print progress to stdout as JSON lines, and add a version.

It is started as `python -m aliquot.storage.training.process LOG REGISTRY SETTINGS`, with a low priority. It may be
killed at any moment: the files on disk stay valid, and the next training resumes after the last finished round.
"""

import sqlite3
import sys
from pathlib import Path

import msgspec

from aliquot.learn.progress import TrainingEnded, lower_priority, print_line
from aliquot.learn.registry import Manifest, ModelRegistry
from aliquot.learn.settings import LearnSettings
from aliquot.learn.training import TooFewSessionsError, train
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.training.steps import as_dated

FAILED = 1


def run(log: Path, registry: Path, settings: LearnSettings) -> TrainingEnded:
    """Train a version from the log, and print the progress."""
    try:
        sessions = [as_dated(session) for session in read_sessions(log)]
        manifest = train(sessions, ModelRegistry(registry, Manifest), settings, print_line)
    except TooFewSessionsError as error:
        return TrainingEnded(error=str(error))
    except BlockingIOError:
        return TrainingEnded(error="another training is running")
    except (OSError, sqlite3.Error) as error:
        return TrainingEnded(error=f"{type(error).__name__}: {error}")
    return TrainingEnded(manifest.version)


if __name__ == "__main__":
    chosen = msgspec.json.decode(sys.argv[3], type=LearnSettings)
    lower_priority(chosen)
    ended = run(Path(sys.argv[1]), Path(sys.argv[2]), chosen)
    print_line(ended)
    sys.exit(FAILED if ended.error else 0)
