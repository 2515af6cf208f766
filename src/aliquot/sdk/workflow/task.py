"""The task of a workflow in which a function runs: its token and its key."""

import json
import os
from typing import NamedTuple

VARIABLE = "ALIQUOT_TASK"


class TaskInfo(NamedTuple):
    """The place of a call in a workflow. Outside of workflows all its fields are empty.

    key: the same for all attempts and repeated runs of one entry into the state, so it can recognize a repetition.
    token: answers the task, if the workflow waits for that (`aliquot.wait_for`).
    deadline: when the execution gives the task up, in seconds since the epoch.
    """

    execution: str = ""
    key: str = ""
    token: str = ""
    deadline: float | None = None


def task() -> TaskInfo:
    """Return the task of a workflow in which this function runs."""
    try:
        found = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return TaskInfo()
    # The variable stays in the sandbox until the next task, so it names its activation.
    if found.get("activation") != os.environ.get("__OW_ACTIVATION_ID", ""):
        return TaskInfo()
    deadline = found.get("deadline")
    return TaskInfo(
        str(found.get("execution", "")),
        str(found.get("key", "")),
        str(found.get("token", "")),
        None if deadline is None else deadline / 1000,
    )
