"""Workflows on a real server, for tests: deploy a definition, start executions, and wait for them."""

import json
from itertools import pairwise

from aliquot.testing.waiting import wait_until

INC = "def main(args): return {'n': args.get('n', 0) + 1}"


def task(name, **more):
    """Return a Task state."""
    return {"Type": "Task", "Resource": name, **more}


def chain(*states, **more):
    """Return a definition of states that follow one another, named A, B and so on."""
    names = [chr(ord("A") + number) for number in range(len(states))]
    linked = dict(zip(names, states, strict=True))
    for name, following in pairwise(names):
        linked[name] = {**linked[name], "Next": following}
    linked[names[-1]] = {**linked[names[-1]], "End": True}
    return {"StartAt": "A", "States": linked, **more}


def deploy(client, name, definition, *, durable=True, **more):
    annotations = [] if durable else [{"key": "durable", "value": False}]
    client.deploy(name, json.dumps(definition), kind="workflow", annotations=annotations, **more)


def start(client, workflow, value=None, **more):
    """Start an execution and return its id."""
    answer = client.post(f"workflows/{workflow}/executions", json={"input": {} if value is None else value, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()["executionId"]


def read(client, execution):
    answer = client.get(f"executions/{execution}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def wait_for_end(client, execution, *, timeout_s=120):
    return wait_until(
        lambda: read(client, execution),
        lambda found: found["status"] != "RUNNING",
        what=f"the end of execution {execution}",
        timeout_s=timeout_s,
    )


def wait_for_state(client, execution, state, waits):
    """Wait until an execution stands in a state and waits for this."""
    return wait_until(
        lambda: read(client, execution),
        lambda found: any(one["state"] == state and waits in one["waits"] for one in found["states"]),
        what=f"execution {execution} in {state}",
    )


def history(client, execution, **query):
    answer = client.get(f"executions/{execution}/history", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()
