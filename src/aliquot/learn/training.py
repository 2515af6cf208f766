"""One training from the log's sessions to a version in the registry: learn, try on held-back sessions, choose, keep."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.learn import onnx_file
from aliquot.learn.blend import BlendPredictor
from aliquot.learn.choosing import PredictorChoice, choose
from aliquot.learn.later import count_later
from aliquot.learn.lstm import LstmError, LstmPredictor
from aliquot.learn.markov import MarkovPredictor, PopularPredictor
from aliquot.learn.model import calibrated
from aliquot.learn.parts import NETWORK, REACH, TABLES, VOCABULARY, VersionParts, open_parts
from aliquot.learn.predictor import NoPredictor, Predictor
from aliquot.learn.registry import BrokenVersionError, EpochResult, Manifest, ModelRegistry, now_ms
from aliquot.learn.scoring import HeldOutStep, held_out_steps, score
from aliquot.learn.settings import LearnSettings
from aliquot.learn.steps import Session
from aliquot.learn.tables import count
from aliquot.learn.vocabulary import MAX_STEPS, MAX_STEPS_INT8, Vocabulary, choose_vocabulary

HELD_BACK = 0.2  # of the sessions, the newest
_MAX_TRIALS = 20_000  # places of held-back sessions, at most
_MIN_STEPS = 200  # below that there is nothing for a network to learn
_MIN_COMMON_STEPS = 20  # places that neither version has learned from, for a fair trial


class TooLittleError(Exception):
    """There is not enough to learn from; the text says how much there must be."""


class DatedSession(Struct, frozen=True):
    began_s: float
    steps: Session


class TrainingProgress(Struct, frozen=True):
    """Told while a training goes on; `point` after each round of the network."""

    what: str
    done: float  # 0 to 1
    point: EpochResult | None = None


OnProgress = Callable[[TrainingProgress], None]


class TrainingResult(Struct, frozen=True):
    """What a training made, before it is compared with what serves."""

    choice: PredictorChoice
    files: dict[str, bytes]
    manifest: Manifest
    predictors: dict[str, Predictor]
    marks: frozenset[str]  # that its predictors may name, and that are no files


def split(sessions: Sequence[DatedSession], least: int) -> tuple[list[DatedSession], list[DatedSession]]:
    """By time: what is held back is newer than what is learned from. Raises `TooLittleError`."""
    ordered = sorted((one for one in sessions if len(one.steps) > 1), key=lambda one: one.began_s)
    if len(ordered) < least:
        raise TooLittleError(f"there are {len(ordered)} sessions of more than one access in the log; it takes {least}")
    border = min(len(ordered) - 1, int((1 - HELD_BACK) * len(ordered)))
    return ordered[:border], ordered[border:]


def train(
    sessions: Sequence[DatedSession], registry: ModelRegistry, settings: LearnSettings, on_progress: OnProgress
) -> Manifest:
    """Add a version, and let it serve if it is better than the one that does. Raises `TooLittleError`."""
    learned, held_back = split(sessions, max(2, settings.least_sessions))
    with registry.training() as work:
        made = learn(learned, held_back, work, settings, on_progress)
        accepted, why = _against_serving(made, held_back, registry)
        manifest = msgspec.structs.replace(
            made.manifest, version=registry.next_version(), accepted=accepted, why=why, created=now_ms()
        )
        registry.add(manifest, made.files)
        if accepted and not registry.serving().pinned:
            registry.serve(manifest.version)
        registry.prune(settings.keep_versions)
    on_progress(TrainingProgress(why, 1.0))
    return manifest


def learn(
    learned: Sequence[DatedSession],
    held_back: Sequence[DatedSession],
    work: Path,
    settings: LearnSettings,
    on_progress: OnProgress,
) -> TrainingResult:
    """All predictors from `learned`, the choice by `held_back`, and then the counts once more from both."""
    on_progress(TrainingProgress("counting what follows what", 0.0))
    past, newest = [one.steps for one in learned], [one.steps for one in held_back]
    tables = count(past)
    marks = frozenset(step.file for step in tables.steps if step.is_mark)
    singles: dict[str, Predictor] = {
        "none": NoPredictor(),
        "popular": PopularPredictor(tables),
        "markov1": MarkovPredictor(tables, 1),
        "markov2": MarkovPredictor(tables, 2),
    }
    files: dict[str, bytes] = {}
    curve: list[EpochResult] = []
    without = _no_network(past, settings)
    if not without:
        vocabulary, curve = _fit(past, newest, work, settings, on_progress)
        files = _network_files(work, vocabulary)
        try:
            singles["lstm"] = LstmPredictor(files[NETWORK], vocabulary)
        except LstmError as error:
            without = str(error)
    on_progress(TrainingProgress("trying all on held-back sessions", 0.9))
    choice = choose(singles, held_out_steps(newest, _MAX_TRIALS), marks)
    calibration = _calibration(
        choice, {**files, TABLES: tables.to_bytes(), REACH: count_later(past).to_bytes()}, newest
    )
    on_progress(TrainingProgress("counting once more, with the held-back sessions", 0.95))
    everything = [*past, *newest]
    files |= {TABLES: count(everything).to_bytes(), REACH: count_later(everything).to_bytes()}
    manifest = msgspec.structs.replace(
        calibration,
        sessions=len(everything),
        held_back=len(newest),
        steps=sum(map(len, everything)),
        until_s=max(one.began_s for one in held_back),
        curve=curve,
        without=without,
    )
    return TrainingResult(choice, files, manifest, singles, marks)


def _calibration(choice: PredictorChoice, files: dict[str, bytes], held_back: Sequence[Session]) -> Manifest:
    """The manifest as far as the choice makes it."""
    manifest = Manifest(
        0, 0, choice.winner, choice.scores, 0, 0, 0, 0.0, accepted=False, why="", weights=choice.weights
    )
    model = VersionParts(files, choice.weights).model(choice.winner, manifest)
    return msgspec.structs.replace(manifest, calibration=calibrated(model, held_back).calibration)


def _no_network(past: Sequence[Session], settings: LearnSettings) -> str:
    """Why none is trained; empty: one is."""
    if not settings.with_lstm:
        return "the network is switched off"
    missing = [name for name in ("torch", "onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed: pip install 'aliquot[learn]'"
    if sum(map(len, past)) < _MIN_STEPS:
        return f"there are fewer than {_MIN_STEPS} accesses to learn from"
    return ""


def _fit(
    past: Sequence[Session], newest: Sequence[Session], work: Path, settings: LearnSettings, on_progress: OnProgress
) -> tuple[Vocabulary, list[EpochResult]]:
    """Train the network into `work`; torch is imported here, and only in a process that trains."""
    from aliquot.learn.fitting import TrainingBudget, fit  # noqa: PLC0415 - torch takes seconds to import

    recent = _newest(past, settings.most_steps)
    vocabulary = choose_vocabulary(recent, MAX_STEPS_INT8)
    effort = TrainingBudget(settings.epochs, settings.most_minutes * 60, settings.threads)
    checkpoint = work / f"{_signature(recent, vocabulary, effort.epochs)}.checkpoint"
    for other in (*work.glob("*.checkpoint"), *work.glob("*.aside")):
        if other != checkpoint:
            other.unlink()

    def on_part(epoch: int, part: float) -> None:
        done = 0.05 + 0.85 * (epoch - 1 + part) / effort.epochs
        on_progress(TrainingProgress(f"training the network, round {epoch} of at most {effort.epochs}", done))

    def on_round(point: EpochResult) -> None:
        done = 0.05 + 0.85 * point.epoch / effort.epochs
        on_progress(TrainingProgress(f"round {point.epoch}: {point.top1:.1%} right on held-back sessions", done, point))

    network, curve = fit(recent, newest, vocabulary, effort, checkpoint, on_round, on_part)
    onnx_file.write(network.arrays(), work / NETWORK)
    return vocabulary, curve


def _network_files(work: Path, vocabulary: Vocabulary) -> dict[str, bytes]:
    path = work / NETWORK
    if len(vocabulary.steps) > MAX_STEPS:
        onnx_file.quantize(path, work / "int8.onnx")
        path = work / "int8.onnx"
    return {NETWORK: path.read_bytes(), VOCABULARY: msgspec.msgpack.encode(vocabulary.steps)}


def _newest(sessions: Sequence[Session], most: int) -> list[Session]:
    kept: list[Session] = []
    for session in reversed(sessions):
        if most <= 0:
            break
        kept.append(session)
        most -= len(session)
    return kept[::-1]


def _signature(sessions: Sequence[Session], vocabulary: Vocabulary, epochs: int) -> str:
    """Of what is learned from: only the same training is taken up again."""
    digest = sha256(f"{epochs} {len(vocabulary)}".encode())
    for session in sessions:
        digest.update("\n".join(step.file for step in session).encode())
    return digest.hexdigest()[:16]


def _against_serving(
    made: TrainingResult, held_back: Sequence[DatedSession], registry: ModelRegistry
) -> tuple[bool, str]:
    """Whether it is better than the version in use, where possible on sessions that neither has learned from."""
    winner = made.choice.winner
    if winner == "none":
        return False, "nothing that was learned names a file of the held-back sessions"
    serving = registry.serving().version
    try:
        old = registry.manifest(serving)
        parts = open_parts(old, registry.read(old))
        before = parts.predictor(old.winner)
    except (BrokenVersionError, LstmError):
        return True, f"{winner} is the best on held-back sessions, and nothing served before"
    fresh = [one.steps for one in held_back if one.began_s > old.until_s]
    asked = held_out_steps(fresh, _MAX_TRIALS)
    if len(asked) < _MIN_COMMON_STEPS:
        asked = held_out_steps([one.steps for one in held_back], _MAX_TRIALS)
    marks = made.marks.union(step.file for step in parts.tables.steps if step.is_mark)
    theirs = score(before, asked, marks).worth
    ours = _worth(made, asked, marks)
    better = ours > theirs
    compared = f"{winner} {ours:.1%} against version {serving}'s {old.winner} {theirs:.1%} on {len(asked)} accesses"
    return better, f"{'better' if better else 'not better'} than the one in use: {compared}"


def _worth(made: TrainingResult, asked: Sequence[HeldOutStep], marks: frozenset[str]) -> float:
    name, weights = made.choice.winner, made.choice.weights
    if name == "blend":
        blend = BlendPredictor([made.predictors[part] for part in weights], list(weights.values()))
        return score(blend, asked, marks).worth
    return score(made.predictors[name], asked, marks).worth
