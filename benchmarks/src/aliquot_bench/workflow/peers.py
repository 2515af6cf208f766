"""Other engines: moto's Step Functions, and DBOS with SQLite. Each runs in an environment of its own.

A program is a text and not a module, because its environment has no Aliquot. It prints one number.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from aliquot_bench.environments import MeasurementError, cache_folder, prepare, python, run, scratch, version

MOTO = """
import json, sys, time
import boto3
from moto import mock_aws

short, long, value, runs = json.loads(sys.argv[2])
role = "arn:aws:iam::123456789012:role/any"

def run_s(client, machine, name):
    began = time.perf_counter()
    arn = client.start_execution(stateMachineArn=machine, name=name, input=json.dumps(value))["executionArn"]
    while (told := client.describe_execution(executionArn=arn))["status"] == "RUNNING":
        time.sleep(0.0005)
    assert told["status"] == "SUCCEEDED", told
    return time.perf_counter() - began

with mock_aws(config={"stepfunctions": {"execute_state_machine": True}}):
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
    client = boto3.client("stepfunctions", **keys)
    machines = [
        client.create_state_machine(name=name, definition=json.dumps(text), roleArn=role)["stateMachineArn"]
        for name, text in (("short", short), ("long", long))
    ]
    times = [[run_s(client, machine, str(number)) for machine in machines] for number in range(runs)]
    states = len(long["States"]) - len(short["States"])
    print(1e6 * (min(last for _, last in times) - min(first for first, _ in times)) / states)
"""

DBOS = """
import json, sys, time
from dbos import DBOS

folder, (steps, runs) = sys.argv[1], json.loads(sys.argv[2])
url = f"sqlite:///{folder}/dbos.sqlite"
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})

@DBOS.step()
def step(number):
    return number

@DBOS.workflow()
def flow(count):
    for number in range(count):
        step(number)
    return count

def run_s(count):
    began = time.perf_counter()
    flow(count)
    return time.perf_counter() - began

DBOS.launch()
run_s(steps)
times = sorted(run_s(steps + 1) - run_s(1) for _ in range(runs))
DBOS.destroy()
print(1e6 * times[len(times) // 2] / steps)
"""


class WorkflowPeer(Struct):
    """An engine to compare with. `reason` says why it cannot be measured."""

    name: str
    requirement: str
    program: str
    version: str = ""
    reason: str = ""
    environment: Path | None = None
    samples: list[float] = []

    def prepare(self, on_step: Callable[[str], None]) -> None:
        """Install it, unless that was done before."""
        try:
            self.environment = prepare(cache_folder() / self.name.lower(), (self.requirement,), on_step)
            self.version = version(self.environment, self.requirement)
        except MeasurementError as error:
            self.reason = f"does not install: {error}"

    def measure(self, arguments: Sequence[object]) -> None:
        """Run its program once, and add the number that it prints."""
        if self.environment is None or self.reason:
            return
        try:
            with scratch() as folder:
                program = folder / "program.py"
                program.write_text(self.program, encoding="utf-8")
                printed = run([python(self.environment), str(program), str(folder), json.dumps(arguments)])
            self.samples.append(float(printed.split()[-1]))
        except (MeasurementError, ValueError) as error:
            self.reason = str(error)


def moto() -> WorkflowPeer:
    return WorkflowPeer("moto", "moto[stepfunctions]", MOTO)


def dbos() -> WorkflowPeer:
    return WorkflowPeer("DBOS", "dbos", DBOS)
