"""Draw a workflow: a file, a deployed one, or an execution with the states that it has entered."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from aliquot.cli.definitions import YAML, read_source
from aliquot.cli.gateway import ACTIONS, connect
from aliquot.core.errors import InputError
from aliquot.sdk import answers
from aliquot.sdk.calls import entity_path
from aliquot.sdk.workflow.executions import EXECUTIONS, read_history
from aliquot.workflow.marks import ABORTED, CAUGHT, CURRENT, FAILED, SUCCEEDED, StateMark

_FILES = (*YAML, ".json", ".py")
_ID = re.compile(r"[0-9a-f]{32}")
_ENTERED, _EXITED = "stateEnteredEventDetails", "stateExitedEventDetails"
_FAILURES = ("TaskFailed", "TaskTimedOut", "ParallelStateFailed", "MapStateFailed", "EvaluationFailed")


class Drawn(NamedTuple):
    """A definition to draw, and the marks of an execution."""

    title: str
    definition: Any
    marks: dict[str, StateMark]


def read_drawn(target: str, data: Path | None) -> Drawn:
    """Return what is to be drawn: a file if there is one, otherwise an execution by its id, or a deployed workflow."""
    if _is_file(target):
        source = read_source(target)
        return Drawn(source.name, source.definition, {})
    gateway = connect(data)
    if _ID.fullmatch(target):
        query = {"definition": "true"}  # the workflow may have been changed since
        found = gateway.send("GET", f"{EXECUTIONS}/{target}", f"execution {target}", query=query)
        marks = marks_of(gateway.client.run(read_history(target, 0)), found)
        return Drawn(str(found["workflow"]), json.loads(found["definition"]), marks)
    action = gateway.entity(ACTIONS, target, code=True)
    if action["exec"]["kind"] != "workflow":
        raise InputError(f"{target} is no workflow, but of the kind {action['exec']['kind']}")
    return Drawn(target, json.loads(action["exec"]["code"]), {})


def read_picture(target: str, data: Path | None) -> str | None:
    """Return the picture that the platform draws of an execution or a deployed workflow. Of a file it draws none."""
    if _is_file(target):
        return None
    gateway = connect(data)
    path = f"{EXECUTIONS}/{target}" if _ID.fullmatch(target) else entity_path("workflows", target)
    return answers.check(gateway.reply("GET", f"{path}/graph"), target).body.decode()


def _is_file(target: str) -> bool:
    file = Path(target.partition(":")[0])
    return file.exists() or file.suffix in _FILES


def marks_of(events: list[dict[str, Any]], found: dict[str, Any]) -> dict[str, StateMark]:
    """Return the marks of an execution, from its history and its description."""
    entered: dict[str, int] = {}
    status: dict[str, str] = {}
    before = {event["id"]: event for event in events}
    for event in events:
        if _ENTERED in event:
            name = event[_ENTERED]["name"]
            entered[name] = entered.get(name, 0) + 1
            status[name] = FAILED if found["status"] == "FAILED" else ABORTED
        elif _EXITED in event:
            last = before.get(event["previousEventId"], {})
            status[event[_EXITED]["name"]] = CAUGHT if last.get("type") in _FAILURES else SUCCEEDED
    standing: dict[str, int] = {}
    for state in found.get("states", ()):
        standing[state["state"]] = standing.get(state["state"], 0) + 1
    return {
        name: StateMark(CURRENT if name in standing else status[name], count, standing.get(name, 0))
        for name, count in entered.items()
    }
