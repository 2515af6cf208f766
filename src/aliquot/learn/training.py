"""Train all predictors on sessions, choose the best on held-back sessions, and add a version to the registry."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.clock import now_ms
from aliquot.learn import onnx_file
from aliquot.learn.blend import BlendPredictor
from aliquot.learn.choosing import PredictorChoice, choose
from aliquot.learn.extra import INSTALL, missing_packages
from aliquot.learn.later import count_later
from aliquot.learn.lstm import LstmError, LstmPredictor
from aliquot.learn.markov import MarkovPredictor, PopularPredictor
from aliquot.learn.model import with_calibration
from aliquot.learn.parts import LATER, NETWORK, TABLES, VOCABULARY, VersionParts, open_parts
from aliquot.learn.predictor import NullPredictor, Predictor
from aliquot.learn.progress import OnProgress, TrainingProgress
from aliquot.learn.registry import BrokenVersionError, EpochResult, Manifest, ModelRegistry
from aliquot.learn.scoring import HeldOutStep, held_out_steps, score
from aliquot.learn.settings import LearnSettings
from aliquot.learn.steps import Session
from aliquot.learn.tables import Tables, count
from aliquot.learn.vocabulary import MAX_STEPS, MAX_STEPS_INT8, Vocabulary, choose_vocabulary

HELD_BACK = 0.2  # share of the sessions, the newest ones
_MAX_TRIALS = 20_000  # held-out steps that predictors are scored on
_MIN_STEPS = 200  # fewer steps are not enough to train a network
_MIN_COMMON_STEPS = 20  # held-out steps unknown to both versions, for a comparison on these alone


class TooFewSessionsError(Exception):
    """The log has too few sessions. The text gives the required number."""


class DatedSession(Struct, frozen=True):
    """A session and the time of its beginning."""

    began_s: float
    steps: Session


class TrainingResult(Struct, frozen=True):
    """The result of a training before it is compared with the serving version."""

    choice: PredictorChoice
    files: dict[str, bytes]
    manifest: Manifest
    predictors: dict[str, Predictor]
    marks: frozenset[str]  # steps that its predictors may name and that are not files


class _TrainedNetwork(Struct, frozen=True):
    """The network's files and predictor. `without` is the reason why there is no predictor."""

    files: dict[str, bytes] = {}
    curve: list[EpochResult] = []
    predictor: LstmPredictor | None = None
    without: str = ""


def split(sessions: Sequence[DatedSession], min_sessions: int) -> tuple[list[DatedSession], list[DatedSession]]:
    """Split sessions by time into older ones to train on and newer ones to hold back. Raises `TooFewSessionsError`."""
    ordered = sorted((one for one in sessions if len(one.steps) > 1), key=lambda one: one.began_s)
    if len(ordered) < min_sessions:
        raise TooFewSessionsError(
            f"there are {len(ordered)} sessions of more than one access in the log; it takes {min_sessions}"
        )
    border = min(len(ordered) - 1, int((1 - HELD_BACK) * len(ordered)))
    return ordered[:border], ordered[border:]


def train(
    sessions: Sequence[DatedSession],
    registry: ModelRegistry[Manifest],
    settings: LearnSettings,
    on_progress: OnProgress,
) -> Manifest:
    """Add a version, and serve it if it is better than the serving one. Raises `TooFewSessionsError`."""
    learned, held_back = split(sessions, max(2, settings.least_sessions))
    with registry.training() as work:
        trained = learn(learned, held_back, work, settings, on_progress)
        accepted, why = _compare_with_serving(trained, held_back, registry)
        manifest = msgspec.structs.replace(
            trained.manifest, version=registry.next_version(), accepted=accepted, why=why, created=now_ms()
        )
        registry.add(manifest, trained.files)
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
    """Train all predictors on `learned`, choose one by `held_back`, and count again with both.

    The version that serves has fresh counts and a network that is older than they are. So it is in the trial: the older
    half of the held-back sessions is counted and ends the training of the network, and the newer half decides.
    """
    on_progress(TrainingProgress("counting which files follow which", 0.0))
    past, newest = [one.steps for one in learned], [one.steps for one in held_back]
    counted, trial = _halves(newest)
    tables = count([*past, *counted])
    marks = frozenset(step.file for step in tables.steps if step.is_mark)
    singles = _counting(tables)
    network = _train_network(past, counted or newest, work, settings, on_progress)
    files = dict(network.files)
    if network.predictor is not None:
        singles["lstm"] = network.predictor
    on_progress(TrainingProgress("scoring all predictors on held-back sessions", 0.9))
    choice = choose(singles, held_out_steps(trial, _MAX_TRIALS), marks)
    if choice.winner == "none" and counted:  # half of the sessions are too few to show anything
        choice = choose({**singles, **_counting(count(past))}, held_out_steps(newest, _MAX_TRIALS), marks)
    later = count_later([*past, *counted])
    calibration = _calibration(choice, {**files, TABLES: tables.to_bytes(), LATER: later.to_bytes()}, trial)
    on_progress(TrainingProgress("counting again, with the held-back sessions", 0.95))
    everything = [*past, *newest]
    files |= {TABLES: count(everything).to_bytes(), LATER: count_later(everything).to_bytes()}
    manifest = msgspec.structs.replace(
        calibration,
        sessions=len(everything),
        held_back=len(newest),
        steps=sum(map(len, everything)),
        until_s=max(one.began_s for one in held_back),
        curve=network.curve,
        without=network.without,
    )
    return TrainingResult(choice, files, manifest, singles, marks)


def _counting(tables: Tables) -> dict[str, Predictor]:
    """Return the predictors that need nothing but counts."""
    return {
        "none": NullPredictor(),
        "popular": PopularPredictor(tables),
        "markov1": MarkovPredictor(tables, 1),
        "markov2": MarkovPredictor(tables, 2),
    }


def _halves(newest: Sequence[Session]) -> tuple[list[Session], list[Session]]:
    """Split held-back sessions into those that are counted and those that decide, if enough steps are left for these.

    Otherwise all of them decide.
    """
    half = len(newest) // 2
    enough = sum(len(session) - 1 for session in newest[half:]) >= _MIN_COMMON_STEPS
    return (list(newest[:half]), list(newest[half:])) if half and enough else ([], list(newest))


def _train_network(
    past: Sequence[Session],
    newest: Sequence[Session],
    work: Path,
    settings: LearnSettings,
    on_progress: OnProgress,
) -> _TrainedNetwork:
    """Train the network, or return the reason why there is none."""
    without = _no_network(past, settings)
    if without:
        return _TrainedNetwork(without=without)
    vocabulary, curve = _fit(past, newest, work, settings, on_progress)
    files = _network_files(work, vocabulary)
    try:
        return _TrainedNetwork(files, curve, LstmPredictor(files[NETWORK], vocabulary))
    except LstmError as error:
        return _TrainedNetwork(files, curve, without=str(error))


def _calibration(choice: PredictorChoice, files: dict[str, bytes], held_back: Sequence[Session]) -> Manifest:
    """Return a manifest with the choice and its calibration. The caller fills the other fields."""
    manifest = Manifest(
        version=0,
        created=0,
        winner=choice.winner,
        scores=choice.scores,
        sessions=0,
        held_back=0,
        steps=0,
        until_s=0.0,
        accepted=False,
        why="",
        weights=choice.weights,
    )
    model = VersionParts(files, choice.weights).model(choice.winner, manifest)
    return msgspec.structs.replace(manifest, calibration=with_calibration(model, held_back).calibration)


def _no_network(past: Sequence[Session], settings: LearnSettings) -> str:
    """Return the reason not to train a network, or an empty string."""
    if not settings.with_lstm:
        return "the network is switched off"
    missing = missing_packages()
    if missing:
        return f"{' and '.join(missing)} not installed: {INSTALL}"
    if sum(map(len, past)) < _MIN_STEPS:
        return f"there are fewer than {_MIN_STEPS} accesses to learn from"
    return ""


def _fit(
    past: Sequence[Session], newest: Sequence[Session], work: Path, settings: LearnSettings, on_progress: OnProgress
) -> tuple[Vocabulary, list[EpochResult]]:
    """Train the network in `work`. Only this function imports torch."""
    from aliquot.learn.fitting import TrainingBudget, fit  # noqa: PLC0415 - torch takes seconds to import

    recent = _newest(past, settings.most_steps)
    vocabulary = choose_vocabulary(recent, MAX_STEPS_INT8)
    budget = TrainingBudget(settings.epochs, settings.most_minutes * 60, settings.threads)
    checkpoint = work / f"{_signature(recent, vocabulary, budget.epochs)}.checkpoint"
    for other in (*work.glob("*.checkpoint"), *work.glob("*.aside")):
        if other != checkpoint:
            other.unlink()

    def on_part(epoch: int, part: float) -> None:
        done = 0.05 + 0.85 * (epoch - 1 + part) / budget.epochs
        on_progress(TrainingProgress(f"training the network, round {epoch} of at most {budget.epochs}", done))

    def on_round(point: EpochResult) -> None:
        done = 0.05 + 0.85 * point.epoch / budget.epochs
        on_progress(TrainingProgress(f"round {point.epoch}: {point.top1:.1%} right on held-back sessions", done, point))

    network, curve = fit(recent, newest, vocabulary, budget, checkpoint, on_round, on_part)
    onnx_file.write(network.arrays(), work / NETWORK)
    return vocabulary, curve


def _network_files(work: Path, vocabulary: Vocabulary) -> dict[str, bytes]:
    path = work / NETWORK
    if len(vocabulary.steps) > MAX_STEPS:
        onnx_file.quantize(path, work / "int8.onnx")
        path = work / "int8.onnx"
    return {NETWORK: path.read_bytes(), VOCABULARY: msgspec.msgpack.encode(vocabulary.steps)}


def _newest(sessions: Sequence[Session], max_steps: int) -> list[Session]:
    kept: list[Session] = []
    for session in reversed(sessions):
        if max_steps <= 0:
            break
        kept.append(session)
        max_steps -= len(session)
    return kept[::-1]


def _signature(sessions: Sequence[Session], vocabulary: Vocabulary, epochs: int) -> str:
    """Return a hash of the training data, so that only the same training is resumed."""
    digest = sha256(f"{epochs} {len(vocabulary)}".encode())
    for session in sessions:
        digest.update("\n".join(step.file for step in session).encode())
    return digest.hexdigest()[:16]


def _compare_with_serving(
    trained: TrainingResult, held_back: Sequence[DatedSession], registry: ModelRegistry[Manifest]
) -> tuple[bool, str]:
    """Compare with the serving version, if possible on sessions that neither was trained on."""
    winner = trained.choice.winner
    if winner == "none":
        return False, "no predictor names a file of the held-back sessions"
    serving = registry.serving().version
    try:
        old = registry.manifest(serving)
        parts = open_parts(old, registry.read(old))
        before = parts.predictor(old.winner)
    except (BrokenVersionError, LstmError):
        return True, f"{winner} is the best on held-back sessions, and nothing served before"
    fresh = [one.steps for one in held_back if one.began_s > old.until_s]
    held_out = held_out_steps(fresh, _MAX_TRIALS)
    if len(held_out) < _MIN_COMMON_STEPS:
        held_out = held_out_steps([one.steps for one in held_back], _MAX_TRIALS)
    marks = trained.marks.union(step.file for step in parts.tables.steps if step.is_mark)
    old_score = score(before, held_out, marks).worth
    new_score = _worth(trained, held_out, marks)
    better = new_score > old_score
    compared = (
        f"{winner} {new_score:.1%} against version {serving}'s {old.winner} {old_score:.1%} on {len(held_out)} accesses"
    )
    return better, f"{'better' if better else 'not better'} than the one in use: {compared}"


def _worth(trained: TrainingResult, held_out: Sequence[HeldOutStep], marks: frozenset[str]) -> float:
    name, weights = trained.choice.winner, trained.choice.weights
    if name == "blend":
        blend = BlendPredictor([trained.predictors[part] for part in weights], list(weights.values()))
        return score(blend, held_out, marks).worth
    return score(trained.predictors[name], held_out, marks).worth
