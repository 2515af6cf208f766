"""A training process as its starter sees it: lines of progress on stdout, a last line with its result, low priority."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from aliquot.learn.registry import EpochResult
from aliquot.learn.settings import LearnSettings


class TrainingProgress(Struct, frozen=True):
    """The progress of a training, with a `point` after each round of a network."""

    what: str
    done: float  # 0 to 1
    point: EpochResult | None = None


OnProgress = Callable[[TrainingProgress], None]


class TrainingEnded(Struct, frozen=True):
    """The last line of output: the new version, or the reason why there is none."""

    version: int = 0
    error: str = ""


class TrainingState(Struct, frozen=True):
    """The progress of the last training, or its result."""

    running: bool
    what: str
    done: float  # 0 to 1
    began: int  # milliseconds since the epoch
    curve: tuple[EpochResult, ...] = ()
    version: int = 0  # the version it made; 0 if none
    error: str = ""


def lower_priority(settings: LearnSettings) -> None:
    """Run at the lowest priority."""
    os.nice(settings.niceness)
    if settings.when_idle:
        with suppress(OSError):  # not every kernel permits it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def print_line(message: TrainingProgress | TrainingEnded) -> None:
    """Print a line. If the starter has ended, the broken pipe ends the training as well."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()
