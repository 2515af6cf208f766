"""Marks for drawings: what an execution has done in each state, as a view of its log."""

from collections.abc import Iterable
from typing import NamedTuple

from aliquot.workflow.interpreter import Event, Execution, frames
from aliquot.workflow.interpreter.evaluation import CATCH
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.language.records import Machine
from aliquot.workflow.values import Value

SUCCEEDED, CAUGHT, ABORTED, FAILED, CURRENT = "succeeded", "caught", "aborted", "failed", "current"


class StateMark(NamedTuple):
    """The status of a state in an execution, how often it was entered, and how many frames stand in it."""

    status: str
    entered: int = 1
    standing: int = 0


class StateMarks:
    """Collects marks while an execution runs. `observe` takes the events of its history."""

    def __init__(self) -> None:
        self._entered: dict[str, int] = {}
        self._left: dict[str, str] = {}

    def observe(self, kind: str, frame: Frame, details: dict[str, Value]) -> None:
        if kind.endswith("StateEntered"):
            name = details["name"]
            self._entered[name] = self._entered.get(name, 0) + 1
        elif kind.endswith("StateExited"):
            self._left[details["name"]] = CAUGHT if frame.phase.startswith(CATCH) else SUCCEEDED

    def marks(self, root: Frame | None) -> dict[str, StateMark]:
        """Return the marks of all states that were entered, given where the execution stands."""
        standing: dict[str, dict[str, int]] = {}
        _collect(root, standing)
        made: dict[str, StateMark] = {}
        for name, entered in self._entered.items():
            here = standing.get(name, {})
            status = next((found for found in (CURRENT, FAILED, ABORTED) if found in here), None)
            made[name] = StateMark(status or self._left.get(name, ABORTED), entered, here.get(CURRENT, 0))
        return made


def _collect(frame: Frame | None, standing: dict[str, dict[str, int]]) -> None:
    if frame is None:
        return
    if frame.waits != frames.DONE:
        status = {frames.FAILED: FAILED, frames.ABORTED: ABORTED}.get(frame.waits, CURRENT)
        counts = standing.setdefault(frame.state.name, {})
        counts[status] = counts.get(status, 0) + 1
    if frame.fork is not None:
        for child in frame.fork.frames.values():
            _collect(child, standing)


def replay_marks(machine: Machine, log: Iterable[tuple[float, Event]], secret: bytes = b"") -> dict[str, StateMark]:
    """Return the marks of an execution from its log."""
    marks = StateMarks()
    execution = Execution(machine, secret=secret, observe=marks.observe)
    for now, event in log:
        execution.step([event], now)
    return marks.marks(execution.root)
