"""The history of an execution, in the event types of AWS: a view of its log."""

from collections.abc import Callable, Iterable

from aliquot.workflow.interpreter import Event, Execution
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.language.records import Machine
from aliquot.workflow.times import format_time
from aliquot.workflow.values import Value, described_text

JSON_TEXT = ("input", "output", "parameters")
SHARED_DETAILS = (("StateEntered", "stateEnteredEventDetails"), ("StateExited", "stateExitedEventDetails"))
Details = dict[str, Value]


def details_key(kind: str) -> str:
    """Return the name of the field with the details of an event."""
    for suffix, key in SHARED_DETAILS:
        if kind.endswith(suffix):
            return key
    return f"{kind[0].lower()}{kind[1:]}EventDetails"


class History:
    """The events of a history, numbered from 1. Each names the event before it in its branch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.events: list[Details] = []
        self._now = now

    def observe(self, kind: str, frame: Frame, details: Details) -> None:
        """Add an event. Inputs and outputs are JSON as text, as on AWS."""
        if frame.noted == 0 and frame.parent is not None:
            frame.noted = frame.parent.frame.noted
        number = len(self.events) + 1
        event: Details = {
            "id": number,
            "previousEventId": frame.noted,
            "timestamp": format_time(self._now()),
            "type": kind,
        }
        shown = {
            key: described_text(value) if key in JSON_TEXT else value
            for key, value in details.items()
            if value is not None or key in JSON_TEXT
        }
        assigned = details.get("assigned")
        if assigned:
            del shown["assigned"]
            shown["assignedVariables"] = {name: described_text(value) for name, value in assigned.items()}
        if shown:
            event[details_key(kind)] = shown
        self.events.append(event)
        frame.noted = number


def replay_history(machine: Machine, log: Iterable[tuple[float, Event]], secret: bytes = b"") -> list[Details]:
    """Return the history of an execution from its log."""
    history = History(lambda: execution.now)
    execution = Execution(machine, secret=secret, observe=history.observe)
    for now, event in log:
        execution.step([event], now)
    return history.events
