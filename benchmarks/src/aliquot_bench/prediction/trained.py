"""The predictors of each set, trained once and kept in the user's cache until the code or the data change."""

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

import aliquot.learn
from aliquot.learn.parts import VersionParts, open_parts
from aliquot.learn.progress import TrainingProgress
from aliquot.learn.registry import BrokenVersionError, Manifest, ModelRegistry
from aliquot.learn.settings import LearnSettings
from aliquot.learn.steps import Session
from aliquot.learn.training import DatedSession, learn, split
from aliquot_bench.environments import cache_folder
from aliquot_bench.prediction.sets import RecordedSet

_TOTAL_STEPS, _TOTAL_STEPS_QUICK = 1_000_000, 400_000  # steps of all training rounds together
_MIN_ROUNDS, _MAX_ROUNDS = 3, 12
_VERSION = 1


class TrainedSet:
    """The manifest and the predictors of a set, and the sizes of their files."""

    def __init__(self, manifest: Manifest, parts: VersionParts, sizes: dict[str, int]) -> None:
        self.manifest = manifest
        self.parts = parts
        self.sizes = sizes


def load_or_train(recorded: RecordedSet, *, quick: bool, on_progress: Callable[[TrainingProgress], None]) -> TrainedSet:
    """Load the predictors from the cache, or train them, which takes minutes for a large set."""
    settings = _settings(recorded, quick=quick)
    registry = ModelRegistry(cache_folder().parent / "prediction" / _key(recorded, settings), Manifest)
    try:
        return _read(registry)
    except BrokenVersionError:
        past, newest = split(_dated(recorded.training), 2)
        with registry.training() as work:
            trained = learn(past, newest, work, settings, on_progress)
        registry.prune(0)
        registry.add(_numbered(trained.manifest), trained.files)
        return _read(registry)


def _read(registry: ModelRegistry[Manifest]) -> TrainedSet:
    manifest = registry.manifest(_VERSION)
    return TrainedSet(manifest, open_parts(manifest, registry.read(manifest)), registry.sizes(_VERSION))


def _numbered(manifest: Manifest) -> Manifest:
    return replace(manifest, version=_VERSION)


def _settings(recorded: RecordedSet, *, quick: bool) -> LearnSettings:
    steps = max(1, sum(map(len, recorded.training)))
    rounds = max(_MIN_ROUNDS, min(_MAX_ROUNDS, (_TOTAL_STEPS_QUICK if quick else _TOTAL_STEPS) // steps))
    return LearnSettings(epochs=rounds, threads=os.cpu_count() or 1, most_steps=10 * _TOTAL_STEPS)


def _dated(sessions: Sequence[Session]) -> list[DatedSession]:
    """Give each session its position as its time."""
    return [DatedSession(float(number), session) for number, session in enumerate(sessions)]


def _key(recorded: RecordedSet, settings: LearnSettings) -> str:
    """Return a hash of the settings, the code and the data."""
    digest = sha256(repr(settings).encode())
    for source in sorted(Path(aliquot.learn.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for session in recorded.training:
        digest.update("\n".join(f"{step.file} {step.size} {step.operation}" for step in session).encode())
    return digest.hexdigest()[:20]
