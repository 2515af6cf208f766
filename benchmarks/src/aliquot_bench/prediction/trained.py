"""What each set's predictors are, learned once and kept under the user's cache until the code or the data change."""

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

import aliquot.learn
from aliquot.learn.parts import Parts, open_parts
from aliquot.learn.registry import BrokenVersionError, Manifest, Registry
from aliquot.learn.settings import LearnSettings
from aliquot.learn.steps import Session
from aliquot.learn.training import Dated, Progress, learn, split
from aliquot_bench.environments import cache_folder
from aliquot_bench.prediction.sets import RecordedSet

_ENOUGH, _ENOUGH_QUICK = 1_000_000, 400_000  # steps that a network goes over in all rounds together
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 12
_VERSION = 1


class TrainedSet:
    """A set's manifest and predictors."""

    def __init__(self, manifest: Manifest, parts: Parts, sizes: dict[str, int]) -> None:
        self.manifest = manifest
        self.parts = parts
        self.sizes = sizes


def load_or_train(recorded: RecordedSet, *, quick: bool, told: Callable[[Progress], None]) -> TrainedSet:
    """From the cache, or made now: that takes minutes where there is much to learn from."""
    settings = _settings(recorded, quick=quick)
    registry = Registry(cache_folder().parent / "prediction" / _key(recorded, settings))
    try:
        return _read(registry)
    except BrokenVersionError:
        past, newest = split(_dated(recorded.learned), 2)
        with registry.training() as work:
            made = learn(past, newest, work, settings, told)
        registry.prune(0)
        registry.add(_numbered(made.manifest), made.files)
        return _read(registry)


def _read(registry: Registry) -> TrainedSet:
    manifest = registry.manifest(_VERSION)
    return TrainedSet(manifest, open_parts(manifest, registry.read(manifest)), registry.sizes(_VERSION))


def _numbered(manifest: Manifest) -> Manifest:
    return replace(manifest, version=_VERSION)


def _settings(recorded: RecordedSet, *, quick: bool) -> LearnSettings:
    steps = max(1, sum(map(len, recorded.learned)))
    rounds = max(_LEAST_ROUNDS, min(_MOST_ROUNDS, (_ENOUGH_QUICK if quick else _ENOUGH) // steps))
    return LearnSettings(epochs=rounds, threads=os.cpu_count() or 1, most_steps=10 * _ENOUGH)


def _dated(sessions: Sequence[Session]) -> list[Dated]:
    """Their order is their time."""
    return [Dated(float(number), session) for number, session in enumerate(sessions)]


def _key(recorded: RecordedSet, settings: LearnSettings) -> str:
    digest = sha256(repr(settings).encode())
    for source in sorted(Path(aliquot.learn.__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for session in recorded.learned:
        digest.update("\n".join(f"{step.file} {step.size} {step.operation}" for step in session).encode())
    return digest.hexdigest()[:20]
