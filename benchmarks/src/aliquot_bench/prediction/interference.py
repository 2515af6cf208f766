"""Compare eight concurrent users with each alone. Their interleaved accesses pass through a real access log."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeAlias

from aliquot.learn.markov import MarkovPredictor
from aliquot.learn.scoring import HeldOutStep, Score, score
from aliquot.learn.tables import Tables, count
from aliquot.storage.log import AccessLog
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.records import FileAccess
from aliquot.storage.training.steps import as_dated, as_step, history_of
from aliquot_bench.prediction.sets import starts_by_user

USERS = 8
FLUSH_EVERY = 10_000  # accesses
_TRAINING_PART = 0.7  # part of the sessions
Sessions: TypeAlias = list[list[FileAccess]]


class UserSessions(NamedTuple):
    """The sessions of one user to learn from, and those to test on."""

    training: Sessions
    test: Sessions


class InterferenceScores(NamedTuple):
    """The scores of predicting every file that the users open."""

    alone: Score  # each user with a model of their own
    together: Score  # one model learned from the interleaved log, with a history per session
    mixed: Score  # the same model, with one history of all accesses


def measure(data: Path, max_steps: int) -> InterferenceScores:
    """Score the first `max_steps` of each session. Raise `OSError` if the recorded set is missing."""
    users = []
    for sessions in list(starts_by_user(data).values())[:USERS]:
        border = max(1, int(_TRAINING_PART * len(sessions)))
        users.append(UserSessions(sessions[:border], [session[:max_steps] for session in sessions[border:]]))
    with tempfile.TemporaryDirectory() as folder:
        alone = [
            _score(Path(folder) / f"test-{number}.db", _learn(Path(folder) / f"{number}.db", [user]), [user])[0]
            for number, user in enumerate(users)
        ]
        tables = _learn(Path(folder) / "training.db", users)
        together, mixed = _score(Path(folder) / "test.db", tables, users)
    return InterferenceScores(_mean(alone), together, mixed)


def _learn(path: Path, users: Sequence[UserSessions]) -> Tables:
    """Write the users' accesses to a log in turn, and count the steps of the sessions read from it."""
    log = AccessLog(path)
    for number, access in enumerate(_interleaved([user.training for user in users])):
        log.add(access)
        if number % FLUSH_EVERY == 0:  # the log drops accesses that arrive faster than it can write
            log.flush()
    log.close()
    return count(as_dated(session).steps for session in read_sessions(path))


def _score(path: Path, tables: Tables, users: Sequence[UserSessions]) -> tuple[Score, Score]:
    """Score the predictions before each access, with the history of its session and with that of all users."""
    log = AccessLog(path)
    own: list[HeldOutStep] = []
    of_all: list[HeldOutStep] = []
    last: list[FileAccess] = []
    running: dict[str, str] = {}
    for access in _interleaved([user.test for user in users]):
        called = access.function if running.get(access.session) != access.invocation else None
        running[access.session] = access.invocation
        file = as_step(access).file
        own.append(HeldOutStep(history_of(log.recent(access.tenant, access.session), access.tenant, called), file))
        of_all.append(HeldOutStep(history_of(last, access.tenant, called), file))
        log.add(access)
        last = [*last[-9:], access]
    log.close()
    marks = frozenset(step.file for step in tables.steps if step.is_mark)
    model = MarkovPredictor(tables, 2)
    return score(model, own, marks), score(model, of_all, marks)


def _interleaved(users: Sequence[Sessions]) -> Iterator[FileAccess]:
    """Yield one access of each user in turn. The sessions of a user follow each other."""
    for turn in zip_longest(*([access for session in sessions for access in session] for sessions in users)):
        yield from (access for access in turn if access is not None)


def _mean(scores: Sequence[Score]) -> Score:
    """Return the mean of scores, weighted by their number of places."""
    places = sum(one.places for one in scores)
    return Score(
        places,
        sum(one.top1 * one.places for one in scores) / places,
        sum(one.top5 * one.places for one in scores) / places,
    )
