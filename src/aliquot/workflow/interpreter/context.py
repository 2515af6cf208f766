"""The context object, with AWS's fields."""

from typing import TYPE_CHECKING

from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.tokens import TaskPlace
from aliquot.workflow.times import format_time
from aliquot.workflow.values import Value

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution


def context_object(run: "Execution", frame: Frame) -> dict[str, Value]:
    """Return the context object of the state that a frame stands in."""
    started = run.started
    made: dict[str, Value] = {
        "Execution": {
            "Id": run.id,
            "Input": started.input if started else None,
            "Name": (started.name or started.execution) if started else "",
            "RoleArn": "",
            "StartTime": format_time(run.started_at),
            "RedriveCount": run.redrives,
        },
        "StateMachine": {"Id": started.workflow if started else "", "Name": started.workflow if started else ""},
        "State": {
            "Name": frame.state.name,
            "EnteredTime": format_time(frame.entered_at),
            "RetryCount": frame.attempt,
        },
    }
    resource = frame.state.resource
    if resource is not None and resource.callback:
        made["Task"] = {"Token": TaskPlace(run.id, frame.entry, frame.attempt).token(run.secret)}
    if frame.item is not None:
        made["Map"] = {"Item": frame.item}
    return made
