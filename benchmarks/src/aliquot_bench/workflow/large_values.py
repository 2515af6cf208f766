"""A value of 10 MB through three functions: as JSON in a sequence, as an object in a workflow, and inside a group."""

import http
import json
import time
from typing import Any

from aliquot.testing.client import check
from aliquot_bench.environments import MeasurementError
from aliquot_bench.workflow.live import WorkflowServer

BYTES = 10_000_000
AS_JSON, AS_OBJECT, IN_GROUP = "10 MB as JSON", "10 MB as an object", "10 MB in a group"
NAMES = ("make", "hand", "weigh")
FUNCTIONS = """
import aliquot

app = aliquot.App("large")

@app.function
def make(size):
    return {"data": b"x" * size}

@app.function
def hand(data):
    return {"data": data}

@app.function
def weigh(data):
    return {"bytes": len(data)}
"""
# The elements of a list of small numbers take two bytes of JSON each.
JSON_FUNCTIONS = {
    "make": "def main(args): return {'data': [7] * (args['size'] // 2)}",
    "hand": "def main(args): return {'data': args['data']}",
    "weigh": "def main(args): return {'bytes': 2 * len(args['data'])}",
}


def prepare(server: WorkflowServer) -> None:
    """Deploy the three ways."""
    client = server.platform.client
    for name, code in JSON_FUNCTIONS.items():
        client.deploy(f"json-{name}", code)
    body = {"exec": {"kind": "sequence", "components": [f"/_/json-{name}" for name in NAMES]}}
    check(client.put("actions/json-way", json=body))
    for kind, group in (("object", {}), ("group", {"group": "large"})):
        annotations = [{"key": key, "value": value} for key, value in {"sdk": True, **group}.items()]
        states: dict[str, Any] = {}
        for name, following in zip(NAMES, (*NAMES[1:], ""), strict=True):
            client.deploy(f"{kind}-{name}", FUNCTIONS, main=name, annotations=annotations)
            leads: dict[str, Any] = {"Next": following} if following else {"End": True}
            states[name] = {"Type": "Task", "Resource": f"{kind}-{name}", **leads}
        server.deploy(f"{kind}-way", {"StartAt": NAMES[0], "States": states}, durable=False)


def measure(server: WorkflowServer, turns: int) -> dict[str, list[float]]:
    """Return the seconds of each way, in turn. The first turn warms everything up."""
    found: dict[str, list[float]] = {}
    for turn in range(turns + 1):
        for name, way in ((AS_JSON, "json-way"), (AS_OBJECT, "object-way"), (IN_GROUP, "group-way")):
            began = time.perf_counter()
            answer = server.platform.client.post(f"actions/{way}?blocking=true&result=true", json={"size": BYTES})
            took = time.perf_counter() - began
            if answer.status_code != http.HTTPStatus.OK or json.loads(answer.content) != {"bytes": BYTES}:
                raise MeasurementError(f"{way} answered {answer.status_code}: {answer.text[:200]}")
            if turn:
                found.setdefault(name, []).append(took)
    return found
