"""Limits of workflows in the SDK: what is deployed, and which headers an execution gets."""

import json

import pytest

import aliquot
from aliquot.sdk.errors import UsageError
from aliquot.sdk.wire import HttpReply
from aliquot.sdk.workflow.executions import begin, call

app = aliquot.App("limits")


@app.function
def double(x):
    return 2 * x


@app.workflow(latency_slo="1.5s", cost_slo=30)
def twice(x):
    return double(double(x))


def test_declared_limits_are_annotations():
    deploying = twice.put()
    assert next(deploying).method == "GET"
    request = deploying.send(HttpReply(404, {}, b"{}"))
    assert request.method == "PUT"
    annotations = {pair["key"]: pair["value"] for pair in json.loads(request.body)["annotations"]}
    assert (annotations["latency-slo-ms"], annotations["cost-slo"]) == (1500, 30)


@pytest.mark.parametrize("run", [begin, call])
def test_options_are_headers_of_the_execution(run):
    limited = twice.options(deadline="80ms", cost=60, late="drop", prefer="latency")
    name = twice._named()._replace(limits=limited._limits)
    assert dict(next(run(name, {"x": 1})).headers).items() >= {
        "x-aliquot-deadline-ms": "80", "x-aliquot-cost-limit": "60.0", "x-aliquot-late": "drop",
        "x-aliquot-prefer": "latency",
    }.items()  # fmt: skip


@pytest.mark.parametrize("limits", [{"latency_slo": "soon"}, {"latency_slo": 0}, {"cost_slo": -1}, {"cost_slo": "x"}])
def test_wrong_limits_are_refused(limits):
    with pytest.raises(UsageError, match=next(iter(limits))):
        app.workflow(**limits)(lambda x: x)


def test_wrong_options_are_refused():
    with pytest.raises(UsageError, match="deadline"):
        twice.options(deadline="soon")
    with pytest.raises(UsageError, match="late"):
        twice.options(late="never")
