"""The recorded sets as sessions, split by time into those to learn from and those to test on."""

import csv
import gzip
import lzma
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path

from msgspec import Struct

from aliquot.learn.steps import OPEN, AccessStep, Session, begin, call
from aliquot.storage.records import FileAccess, Found

IDLE_S = 30 * 60
SESSION_BLOCKS = 512  # per session, for a block trace without sessions
PAGE_BYTES = 4096
TRAINING_PARTS = (0.3, 0.5, 0.7)  # parts of the sessions to learn from; the tables are of the last
FILES = {  # by set, below the folder of all traces
    "FIFA": "web_sessions/ipredict_FIFA.dat.gz",
    "BMS": "web_sessions/ipredict_BMS.dat.gz",
    "git vllm": "git_edit_sessions/vllm_edits.csv.gz",
    "git dask": "git_edit_sessions/dask_distributed_edits.csv.gz",
    "starts": "self_strace_python/self_strace_file_access.csv.xz",
    "sprite": "block_traces/lirs_sprite.txt.gz",
    "shuffled": "dftracer_ml_io/ml_file_opens.csv.gz",
}


class RecordedSet(Struct, frozen=True):
    """The sessions of a set to learn from, and those to test on."""

    name: str
    training: list[Session]
    test: list[Session]


def fifa(data: Path) -> list[Session]:
    """Read web sessions, one per line. Without times, their order in the file is their order in time."""
    with _lines(data / FILES["FIFA"]) as lines:
        rows = [[page for page in line.split() if page not in {"-1", "-2"}] for line in lines]
    return [[AccessStep(page) for page in row] for row in rows if row]


def bms(data: Path) -> list[Session]:
    sessions: dict[str, Session] = {}
    with _lines(data / FILES["BMS"]) as lines:
        for line in lines:
            session, item = line.split()
            sessions.setdefault(session, []).append(AccessStep(item))
    return list(sessions.values())


def vllm(data: Path) -> list[Session]:
    return _edits(data / FILES["git vllm"])


def dask(data: Path) -> list[Session]:
    return _edits(data / FILES["git dask"])


def starts(data: Path) -> list[Session]:
    return _starts(data, lambda _: True)


def starts_app(data: Path) -> list[Session]:
    """Read only the opens of the functions' own data and model files, which are worth prefetching."""
    return _starts(data, lambda row: row["path"].startswith("/app"))


def starts_app_with_calls(data: Path) -> list[Session]:
    """Read the same opens with the marks of sessions and calls that the platform logs."""
    return _starts(data, lambda row: row["path"].startswith("/app"), marks=True)


def starts_by_user(data: Path) -> dict[str, list[list[FileAccess]]]:
    """Return all opens as the platform logs them: the sessions of each user, in order of the users' first open."""
    users: dict[str, dict[str, list[FileAccess]]] = {}
    with _lines(data / FILES["starts"]) as lines:
        for row in csv.DictReader(lines):
            session = users.setdefault(row["user"], {}).setdefault(row["session"], [])
            names = (row["user"], row["session"], row["function"], row["invocation"], "recorded", row["path"][1:])
            session.append(FileAccess(float(row["t_s"]), *names, int(row["bytes"] or 0), OPEN, 0.0, Found.CACHED))
    return {user: list(sessions.values()) for user, sessions in users.items()}


def sprite(data: Path) -> list[Session]:
    with _lines(data / FILES["sprite"]) as lines:
        blocks = [AccessStep(line.strip(), PAGE_BYTES) for line in lines if line.strip().isdigit()]
    return [blocks[begin : begin + SESSION_BLOCKS] for begin in range(0, len(blocks), SESSION_BLOCKS)]


def shuffled(data: Path) -> list[Session]:
    """Read training runs that open their files in a new order each epoch, so that the next is unpredictable."""
    sessions: dict[tuple[str, str], list[tuple[float, AccessStep]]] = {}
    with _lines(data / FILES["shuffled"]) as lines:
        for row in csv.DictReader(lines):
            step = AccessStep(row["path"], int(row["read_bytes"] or 0))
            sessions.setdefault((row["trace"], row["pid"]), []).append((float(row["t_us"]), step))
    ordered = sorted(sessions.values(), key=lambda opens: min(time for time, _ in opens))
    return [[step for _, step in sorted(opens, key=lambda pair: pair[0])] for opens in ordered]


SETS: dict[str, Callable[[Path], list[Session]]] = {
    "FIFA": fifa,
    "BMS": bms,
    "git vllm": vllm,
    "git dask": dask,
    "starts": starts,
    "starts /app": starts_app,
    "starts /app, with calls": starts_app_with_calls,
    "sprite": sprite,
    "shuffled": shuffled,
}


def load(name: str, data: Path, max_steps: int | None, part: float = TRAINING_PARTS[-1]) -> RecordedSet:
    """Load the sessions with the newest `max_steps` steps of a set, and split them by time at this part of them.

    Raise `OSError` if the set is missing.
    """
    sessions = [session for session in SETS[name](data) if len(session) > 1]
    if max_steps is not None:
        total, first = 0, len(sessions)
        while first and total < max_steps:
            first -= 1
            total += len(sessions[first])
        sessions = sessions[first:]
    border = int(part * len(sessions))
    return RecordedSet(name, sessions[:border], sessions[border:])


def _edits(path: Path) -> list[Session]:
    """Read the edits of each author, in sessions that end after half an hour without an edit."""
    current: dict[str, tuple[float, Session]] = {}
    sessions: list[tuple[float, Session]] = []
    with _lines(path) as lines:
        rows = sorted(
            csv.DictReader(lines), key=lambda row: (float(row["t_epoch"]), int(row["commit"]), int(row["pos"]))
        )
    for row in rows:
        time = float(row["t_epoch"])
        last = current.get(row["user"])
        if last is None or time - last[0] > IDLE_S:
            session: Session = []
            sessions.append((time, session))
        else:
            session = last[1]
        session.append(AccessStep(row["path"]))
        current[row["user"]] = (time, session)
    return [session for _, session in sessions]


def _starts(data: Path, wanted: Callable[[dict[str, str]], bool], *, marks: bool = False) -> list[Session]:
    sessions: dict[str, Session] = {}
    invocations: dict[str, str] = {}
    with _lines(data / FILES["starts"]) as lines:
        for row in csv.DictReader(lines):
            key = row["session"]
            if marks and invocations.get(key) != row["invocation"]:
                session = sessions.setdefault(key, [begin(row["user"])])
                session.append(call(row["user"], row["function"]))
                invocations[key] = row["invocation"]
            if wanted(row):
                step = AccessStep(row["path"], int(row["bytes"] or 0), "write" if row["write"] == "1" else OPEN)
                sessions.setdefault(key, []).append(step)
    return list(sessions.values())


def _lines(path: Path) -> TextIOWrapper:
    return TextIOWrapper((gzip if path.suffix == ".gz" else lzma).open(path), encoding="utf-8")
