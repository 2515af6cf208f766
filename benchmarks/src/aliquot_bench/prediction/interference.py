"""Eight users at once against each alone: their accesses go interleaved through a real log, and come back apart."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeAlias

from aliquot.learn.markov import Markov
from aliquot.learn.scoring import Place, Score, score
from aliquot.learn.tables import Tables, count
from aliquot.storage.log import AccessLog
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.records import Access
from aliquot.storage.training.steps import as_dated, as_step, history_of
from aliquot_bench.prediction.sets import starts_by_user

USERS = 8
FLUSHED = 10_000  # accesses
_LEARNED = 0.7
Sessions: TypeAlias = list[list[Access]]


class UserSessions(NamedTuple):
    learned: Sessions
    tried: Sessions


class InterferenceScores(NamedTuple):
    """Of all that the users open."""

    alone: Score  # a model of their own, and nobody else
    together: Score  # one model for all, learned from the interleaved log; each session has its own history
    mixed: Score  # the same model, asked with the last accesses of whoever


def measure(data: Path, most: int) -> InterferenceScores:
    users = []
    for sessions in list(starts_by_user(data).values())[:USERS]:
        border = max(1, int(_LEARNED * len(sessions)))
        users.append(UserSessions(sessions[:border], [session[:most] for session in sessions[border:]]))
    with tempfile.TemporaryDirectory() as folder:
        alone = [
            _try(Path(folder) / f"tried-{number}.db", _learn(Path(folder) / f"{number}.db", [user]), [user])[0]
            for number, user in enumerate(users)
        ]
        tables = _learn(Path(folder) / "learned.db", users)
        together, mixed = _try(Path(folder) / "tried.db", tables, users)
    return InterferenceScores(_mean(alone), together, mixed)


def _learn(path: Path, users: Sequence[UserSessions]) -> Tables:
    """From what comes back of a log to which all wrote in turn."""
    log = AccessLog(path)
    for number, access in enumerate(_interleaved([user.learned for user in users])):
        log.add(access)
        if number % FLUSHED == 0:  # nobody opens files so fast: what it cannot write soon enough, it loses
            log.flush()
    log.close()
    return count(as_dated(session).steps for session in read_sessions(path))


def _try(path: Path, tables: Tables, users: Sequence[UserSessions]) -> tuple[Score, Score]:
    """Before each access the log is asked for what its session did last; beside it, for what anybody did."""
    log = AccessLog(path)
    own: list[Place] = []
    anybodys: list[Place] = []
    last: list[Access] = []
    running: dict[str, str] = {}
    for access in _interleaved([user.tried for user in users]):
        called = access.function if running.get(access.session) != access.invocation else None
        running[access.session] = access.invocation
        file = as_step(access).file
        own.append(Place(history_of(log.recent(access.tenant, access.session), access.tenant, called), file))
        anybodys.append(Place(history_of(last, access.tenant, called), file))
        log.add(access)
        last = [*last[-9:], access]
    log.close()
    marks = frozenset(step.file for step in tables.steps if step.is_mark)
    model = Markov(tables, 2)
    return score(model, own, marks), score(model, anybodys, marks)


def _interleaved(users: Sequence[Sessions]) -> Iterator[Access]:
    """One access of each user in turn, a user's sessions one after the other."""
    for turn in zip_longest(*([access for session in sessions for access in session] for sessions in users)):
        yield from (access for access in turn if access is not None)


def _mean(scores: Sequence[Score]) -> Score:
    places = sum(one.places for one in scores)
    return Score(
        places,
        sum(one.top1 * one.places for one in scores) / places,
        sum(one.top5 * one.places for one in scores) / places,
    )
