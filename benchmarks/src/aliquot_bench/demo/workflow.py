"""A workflow of three functions in one sandbox: the style transfer of the examples, as an execution on the server."""

from typing import Any

from msgspec import Struct

from aliquot.testing.client import check
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

WORKFLOW, TENANT = "style.transfer", "painter"
SIZE, WHITE, STEPS = 16, 255, 50
TASK_ENTERED = "TaskStateEntered"


class WorkflowResult(Struct, frozen=True):
    """The end of the execution: the states of its tasks, the distance from the style, and how long it took."""

    status: str
    states: list[str]
    first: float
    last: float
    seconds: float

    @property
    def ok(self) -> bool:
        """Return whether the execution succeeded, and the picture came closer to the style."""
        return self.status == "SUCCEEDED" and self.last < self.first

    def text(self) -> str:
        if self.status != "SUCCEEDED":
            return f"Workflow: the execution ended as {self.status}"
        return (
            f"Workflow: {' → '.join(self.states)} ran as a durable execution in {self.seconds:.2f} s, in one sandbox."
            f" The picture is {self.first / self.last:.0f} times closer to the style than before."
        )


def show_workflow(server: LiveServer, key: str) -> WorkflowResult:
    """Run the deployed workflow once. It takes some seconds, most of them for the first start of its sandbox."""
    given = {"content": picture(4, 2), "style": picture(2, 8), "steps": STEPS}
    with server.client(key) as client:
        started = check(client.post(f"workflows/{WORKFLOW}/executions", json={"input": given}))
        execution = started.json()["executionId"]
        found: dict[str, Any] = wait_until(
            lambda: check(client.get(f"executions/{execution}")).json(),
            lambda found: found["status"] != "RUNNING",
            what="the end of the style transfer",
        )
        events = check(client.get(f"executions/{execution}/history")).json()["events"]
    states = [event["stateEnteredEventDetails"]["name"] for event in events if event["type"] == TASK_ENTERED]
    output = found.get("output") or {}
    took_s = (found["end"] - found["start"]) / 1000
    return WorkflowResult(found["status"], states, output.get("first", 0.0), output.get("last", 1.0), took_s)


def picture(rows: int, columns: int) -> list[list[int]]:
    """Return a picture of black and white tiles."""
    return [[WHITE * ((row // rows + column // columns) % 2) for column in range(SIZE)] for row in range(SIZE)]
