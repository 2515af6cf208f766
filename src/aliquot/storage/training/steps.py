"""Convert the log's accesses to the steps that predictors learn from, with marks for sessions and calls."""

from collections.abc import Sequence

from aliquot.learn.steps import AccessStep, Session, begin_marks, call_marks
from aliquot.learn.training import DatedSession
from aliquot.storage.log import LoggedSession
from aliquot.storage.records import FileAccess, FileKey


def as_step(access: FileAccess) -> AccessStep:
    """Convert one access to a step."""
    return AccessStep(str(FileKey(access.dataset, access.path)), access.size, access.operation)


def as_key(file: str) -> FileKey:
    """Split a step's file into dataset and path. Names of datasets have no slash."""
    dataset, _, path = file.partition("/")
    return FileKey(dataset, path)


def as_steps(accesses: Sequence[FileAccess]) -> Session:
    """Convert accesses to steps, with a mark where another invocation begins."""
    steps: Session = []
    invocation: str | None = None
    for access in accesses:
        if access.invocation != invocation:
            invocation = access.invocation
            steps += call_marks(access.tenant, access.function, access.user)
        steps.append(as_step(access))
    return steps


def as_dated(session: LoggedSession) -> DatedSession:
    """Convert a session of the log to marks and steps, with its start time."""
    return DatedSession(session.began_s, [*begin_marks(session.tenant, session.user), *as_steps(session.accesses)])


def history_of(recent: Sequence[FileAccess], tenant: str, function: str | None, user: str = "") -> Session:
    """Return the history for a prediction.

    `function` is the one just called, empty when a session begins, and None otherwise.
    """
    steps = as_steps(recent) or begin_marks(tenant, user)
    if function:
        steps += call_marks(tenant, function, user)
    return steps
