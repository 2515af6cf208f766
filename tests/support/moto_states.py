"""Run a definition on moto's Step Functions, which follow AWS in most things."""

import json
import time
from types import SimpleNamespace

import boto3
import jsonata
from moto import mock_aws
from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.branch_worker import BranchWorker
from moto.stepfunctions.parser.asl.jsonata import jsonata as moto_jsonata

ROLE = "arn:aws:iam::123456789012:role/any"
MAX_WAIT_S = 60


class MotoStates:
    """A client of moto, in this process. Retries do not wait, and JSONata is evaluated by the package that we use.

    Branches run one after the other. Elsewhere two that fail are a race: either error may be that of the state.
    """

    def __init__(self, monkeypatch):
        monkeypatch.setattr(moto_jsonata, "_eval_jsonata", lambda source: jsonata.Jsonata(source).evaluate(None))
        monkeypatch.setattr(retrier_decl, "time", SimpleNamespace(sleep=lambda _: None))
        monkeypatch.setattr(BranchWorker, "start", _in_turn(BranchWorker.start))
        self._mock = mock_aws(config={"stepfunctions": {"execute_state_machine": True}})
        self._count = 0

    def __enter__(self):
        self._mock.start()
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        self._client = boto3.client("stepfunctions", region_name="us-east-1", **keys)
        return self

    def __exit__(self, *_):
        self._mock.stop()

    def run(self, definition, value):
        """Return the end of an execution, as describe_execution tells it, and the types of its history."""
        self._count += 1
        machine = self._client.create_state_machine(
            name=f"machine-{self._count}", definition=json.dumps(definition), roleArn=ROLE
        )
        arn = self._client.start_execution(stateMachineArn=machine["stateMachineArn"], input=json.dumps(value))
        name = {"executionArn": arn["executionArn"]}
        deadline = time.monotonic() + MAX_WAIT_S
        while (told := self._client.describe_execution(**name))["status"] == "RUNNING":
            assert time.monotonic() < deadline, f"moto did not end {definition} in {MAX_WAIT_S} s"
            time.sleep(0.002)
        return told, self._client.get_execution_history(**name, maxResults=1000)["events"]


def _in_turn(start):
    """Return a start of branches that waits for their end, and leaves out those after a failed one."""

    def start_and_join(worker):
        if not worker._branch_worker_comm._termination_event.is_set():
            start(worker)
            worker._worker_thread.join(MAX_WAIT_S)

    return start_and_join
