"""Eight users at once against each alone: their accesses go interleaved through a real log, and come back apart."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from aliquot.bench.prediction.sets import starts_by_user
from aliquot.learn.markov import Markov
from aliquot.learn.scoring import Place, Score, score
from aliquot.learn.steps import WINDOW, Session, Step
from aliquot.learn.tables import count
from aliquot.storage.log import AccessLog
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.records import Access, Found
from aliquot.storage.training.steps import as_key, as_step

USERS = 8
_LEARNED = 0.7


class User(NamedTuple):
    name: str
    learned: list[Session]
    tried: list[Session]


class Outcome(NamedTuple):
    """Means over the users, of all that they open."""

    alone: Score  # a model of their own, and nobody else
    together: Score  # one model for all, learned from the interleaved log; each session has its own history
    mixed: Score  # the same model, asked with the last accesses of whoever


def measure(data: Path, most: int) -> Outcome:
    users = []
    for name, sessions in list(starts_by_user(data).items())[:USERS]:
        border = max(1, int(_LEARNED * len(sessions)))
        users.append(User(name, sessions[:border], [session[:most] for session in sessions[border:]]))
    alone = [_alone(user) for user in users]
    with tempfile.TemporaryDirectory() as folder:
        model = Markov(count(_through_log(Path(folder) / "learned.db", [user.learned for user in users])), 2)
        together, mixed = _asked_through_log(Path(folder) / "tried.db", model, [user.tried for user in users])
    return Outcome(_mean(alone), together, mixed)


def _alone(user: User) -> Score:
    model = Markov(count(user.learned), 2)
    asked = [
        Place(session[max(0, place - WINDOW) : place], session[place].file)
        for session in user.tried
        for place in range(1, len(session))
    ]
    return score(model, asked)


def _through_log(path: Path, users: Sequence[Sequence[Session]]) -> list[Session]:
    log = AccessLog(path)
    for access in _interleaved(users):
        log.add(access)
    log.close()
    return [[as_step(access) for access in session.accesses] for session in read_sessions(path)]


def _asked_through_log(path: Path, model: Markov, users: Sequence[Sequence[Session]]) -> tuple[Score, Score]:
    """Before each access the log is asked for what its session, and what anybody, did last."""
    log = AccessLog(path)
    own: list[Place] = []
    anybodys: list[Place] = []
    last: list[Step] = []
    for access in _interleaved(users):
        step = as_step(access)
        recent = log.recent(access.tenant, access.session)
        if recent:
            own.append(Place([as_step(one) for one in recent], step.file))
            anybodys.append(Place(last[-WINDOW:], step.file))
        log.add(access)
        last = [*last[-WINDOW:], step]
    log.close()
    return score(model, own), score(model, anybodys)


def _interleaved(users: Sequence[Sequence[Session]]) -> Iterator[Access]:
    """One access of each user in turn."""
    streams = [_stream(f"user{number}", sessions) for number, sessions in enumerate(users)]
    for number, turn in enumerate(zip_longest(*streams)):
        for access in turn:
            if access is not None:
                tenant, session, step = access
                key = as_key(step.file)
                yield Access(
                    float(number), tenant, session, "f", session, key.dataset, key.path, step.size, step.operation, 0.0,
                    Found.CACHED,
                )  # fmt: skip


def _stream(user: str, sessions: Sequence[Session]) -> Iterator[tuple[str, str, Step]]:
    for number, session in enumerate(sessions):
        for step in session:
            yield user, f"{user}-{number}", step


def _mean(scores: Sequence[Score]) -> Score:
    places = sum(one.places for one in scores)
    return Score(
        places,
        sum(one.top1 * one.places for one in scores) / places,
        sum(one.top5 * one.places for one in scores) / places,
    )
