"""`schemathesis` asks all that the gateway's own OpenAPI page offers: each answer is as documented, none a 5xx."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMAND = Path(sys.prefix) / "bin" / "schemathesis"
CONFIG = """
[auth.openapi.key]
username = "{user}"
password = "{secret}"

[auth.openapi.operator]
bearer = "{operator}"

[phases.stateful.generation]
max-examples = {scenarios}

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 502] # a failed action's, which has its own check

# Routes that may refuse a body or a query for reasons that a schema cannot express.
[[operations]]
include-path-regex = "^/operator/v1/datasets/.*/warm$" # of one whose origin gives nothing, as those made up here
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 404, 424]

[[operations]]
include-method = "PUT" # kinds, limits, what an entity refers to, that a new action has code
checks.positive_data_acceptance.expected-statuses = {refusals}

[[operations]]
include-method = "POST"
include-path-regex = "/actions/" # a time to wait beyond the action's limit; parameters that are final
checks.positive_data_acceptance.expected-statuses = {refusals}

[[operations]]
include-path-regex = "/(executions|tasks|workflows)" # names that are taken, executions that have ended, forged tokens
checks.positive_data_acceptance.expected-statuses = {refusals}

[[operations]]
include-path-regex = "/volumes/.*/files$" # without a path it is the volume itself, which is no file
checks.positive_data_acceptance.expected-statuses = {refusals}

[[operations]]
include-path-regex = "/observe/stream$" # it does not end
enabled = false

[[operations]]
include-path-regex = "^/api/v1/observe/" # names of statuses and measures, and the longest time
checks.positive_data_acceptance.expected-statuses = {refusals}

[[operations]]
include-method = "GET"
include-path-regex = "/activations$" # full records and a count
checks.positive_data_acceptance.expected-statuses = {refusals}
"""

WORKFLOW = '{"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 3600, "End": true}}}'
REFUSALS = '["2xx", 400, 401, 403, 404, 409, 413, 429, 502]'


def run(server, tmp_path, *options, scenarios=8):
    user, _, secret = server.key.partition(":")
    config = tmp_path / "schemathesis.toml"
    told = {"user": user, "secret": secret, "operator": server.operator, "refusals": REFUSALS, "scenarios": scenarios}
    config.write_text(CONFIG.format(**told))
    ran = subprocess.run(
        [COMMAND, "--config-file", config, "run", f"{server.url}/openapi.json", "--checks", "all", *options],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert server.process.poll() is None


def put_what_stays(server):
    """Create the entities that `schemathesis_hooks` names."""
    echo = {"exec": {"kind": "python:3.11", "code": "def main(args): return args"}}
    ends = {"trigger": "/_/t-gamma", "action": "/_/a-gamma"}
    with server.client() as client:
        for path, body in (
            ("actions/a-gamma", {**echo, "annotations": [{"key": "web-export", "value": True}]}),
            ("packages/p-gamma", {}),
            ("actions/w-gamma", {"exec": {"kind": "workflow", "code": WORKFLOW}}),
            ("actions/p-gamma/w-gamma", {"exec": {"kind": "workflow", "code": WORKFLOW}}),
            ("actions/p-gamma/a-gamma", echo),
            ("triggers/t-gamma", {}),
            ("rules/r-gamma", ends),
            ("alarms/t-gamma", {"cron": "0 0 29 2 *"}),
        ):
            client.put(path, json=body).raise_for_status()
        action = {"name": "a-gamma", "namespace": "guest", "backendMethod": "GET", "backendUrl": server.url}
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            apidoc = {"namespace": "_", "gatewayBasePath": "/", "gatewayPath": "/gamma", "gatewayMethod": method}
            url = f"{server.url}/api/v1/web/whisk.system/apimgmt/createApi"
            client.post(url, json={"apidoc": {**apidoc, "action": action}}).raise_for_status()


def test_every_answer_is_as_documented(server, tmp_path):
    put_what_stays(server)
    run(server, tmp_path, "--exclude-path-regex", "^/operator", "--max-examples", "2", "--seed", "1")
    with server.client() as client:
        assert client.get("activations", params={"count": True}).json()["activations"] > 20  # it came that far


@pytest.mark.long
def test_every_answer_is_as_documented_for_long(server, tmp_path):
    put_what_stays(server)
    run(server, tmp_path, "--exclude-path-regex", "^/operator", "--max-examples", "200", scenarios=500)


def test_every_answer_to_the_operator_is_as_documented(server, tmp_path):
    """The last, as it may delete any namespace."""
    run(server, tmp_path, "--include-path-regex", "^/operator", "--max-examples", "2", "--seed", "1")
