"""Deadlines and cost limits of calls through the gateway: headers, annotations, and refusals with an offer."""

import pytest
from gateway_client import ACTIONS, AS_OPERATOR, PUT, gateway, on_a_loop
from gateway_wire import served

from aliquot.core.admission.records import Late, Offer, Prefer, Refusal, RefusalCause
from aliquot.live.invocations.errors import NotPromisedError
from aliquot.live.invocations.objective import CallLimits

ECHO = f"{ACTIONS}/echo"
BLOCKING = f"{ECHO}?blocking=true&result=true"
REFUSAL = Refusal(RefusalCause.DEADLINE, 0.041, 0.063, 7.5, Offer(0.0631, 8), 1.2)


def limits_of(call):
    return None if call.objective is None else call.objective.limits


def declaring(**annotations):
    listed = [{"key": key.replace("_", "-"), "value": value} for key, value in annotations.items()]
    return {**PUT, "annotations": listed}


@on_a_loop
async def test_headers_set_the_limits_of_one_call():
    async with gateway() as g:
        for headers, limits in (
            ({}, None),
            ({"x-aliquot-deadline-ms": "80"}, CallLimits(0.08)),
            ({"x-aliquot-cost-limit": "0"}, CallLimits(None, 0)),
            ({"X-Aliquot-Deadline-Ms": "0.001", "X-Aliquot-Cost-Limit": "60.5"}, CallLimits(0.000001, 60.5)),
            ({"x-aliquot-deadline-ms": "none"}, None),
            ({"x-aliquot-late": "drop"}, None),
            ({"x-aliquot-deadline-ms": "80", "x-aliquot-late": "Drop"}, CallLimits(0.08, late=Late.DROP)),
            ({"x-aliquot-deadline-ms": "80", "x-aliquot-prefer": "latency"}, CallLimits(0.08, prefer=Prefer.LATENCY)),
        ):
            assert (await g.post(BLOCKING, json={}, headers=headers)).status_code == 200
            assert limits_of(g.platform.calls[-1]) == limits


@on_a_loop
async def test_headers_come_before_annotations():
    async with gateway() as g:
        await g.put(f"{ECHO}?overwrite=true", json=declaring(latency_slo_ms=200, cost_slo=9))
        for headers, limits in (
            ({}, CallLimits(0.2, 9)),
            ({"x-aliquot-deadline-ms": "80"}, CallLimits(0.08, 9)),
            ({"x-aliquot-cost-limit": "NONE"}, CallLimits(0.2)),
            ({"x-aliquot-deadline-ms": "none", "x-aliquot-cost-limit": "none"}, None),
        ):
            assert (await g.post(BLOCKING, json={}, headers=headers)).status_code == 200
            assert limits_of(g.platform.calls[-1]) == limits


@on_a_loop
async def test_a_word_that_is_not_known_is_refused_with_those_that_are():
    async with gateway() as g:
        for name, takes in (("late", "run or drop"), ("prefer", "cost or latency or balanced")):
            headers = {"x-aliquot-deadline-ms": "80", f"x-aliquot-{name}": "soon"}
            answer = await g.post(BLOCKING, json={}, headers=headers)
            assert answer.status_code == 400
            assert f"The header x-aliquot-{name} is 'soon'; it takes {takes}." in answer.json()["error"]


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf", "1e99", "", "1_0", "9" * 40])
@on_a_loop
async def test_a_deadline_that_is_none_is_refused_with_what_it_takes(value):
    async with gateway() as g:
        answer = await g.post(BLOCKING, json={}, headers={"x-aliquot-deadline-ms": value})
        assert answer.status_code == 400
        assert f"The header x-aliquot-deadline-ms is '{value[:32]}'; it takes a number" in answer.json()["error"]
        assert not g.platform.calls


@pytest.mark.parametrize("value", ["-1", "cheap", "nan", "1e13"])
@on_a_loop
async def test_a_cost_limit_that_is_none_is_refused_with_what_it_takes(value):
    async with gateway() as g:
        answer = await g.post(BLOCKING, json={}, headers={"x-aliquot-cost-limit": value})
        assert answer.status_code == 400
        assert "it takes a number from 0 to 1e+12, or none" in answer.json()["error"]


@on_a_loop
async def test_a_sequence_takes_limits():
    async with gateway() as g:
        sequence = {"exec": {"kind": "sequence", "components": ["/_/echo"]}}
        assert (await g.put(f"{ACTIONS}/both", json=sequence)).status_code == 200
        headers = {"x-aliquot-deadline-ms": "80"}
        assert (await g.post(f"{ACTIONS}/both?blocking=true", json={}, headers=headers)).status_code == 200
        assert g.platform.calls[-1].objective.limits.deadline_s == 0.08


def check_refusal(answer):
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "2"
    body = answer.json()
    assert body["error"] == "needs 41 ms, earliest end 63 ms"
    assert body["code"] == answer.headers["x-request-id"]
    assert body["refused"] == {
        "why": "deadline",
        "needs_ms": 41.0,
        "earliest_ms": 63.0,
        "cost": 7.5,
        "offer": {"deadline_ms": 64, "cost": 8},
        "retry_ms": 1200,
    }


@on_a_loop
async def test_a_refusal_says_why_and_what_would_be_accepted():
    async with gateway() as g:

        def refuse(call):
            call.reason, call.objective.refusal = "needs 41 ms, earliest end 63 ms", REFUSAL
            call.done(call)

        g.platform.finish = refuse
        headers = {"x-aliquot-deadline-ms": "50"}
        check_refusal(await g.post(BLOCKING, json={}, headers=headers))

        async def accept(call):
            call.objective.refusal = REFUSAL
            raise NotPromisedError("needs 41 ms, earliest end 63 ms", REFUSAL)

        g.platform.accept = accept
        check_refusal(await g.post(ECHO, json={}, headers=headers))
        page = (await g.get("/metrics", headers=AS_OPERATOR, auth=None)).text
        assert 'aliquot_promises_total{action="echo",cause="deadline",end="refused",namespace="guest"} 2.0' in page


@pytest.mark.usefixtures("_with_and_without_a_gateway_process")
@on_a_loop
async def test_limits_are_part_of_a_head_that_is_not_parsed_again():
    """The short way keeps the limits of each head apart."""
    async with served() as (g, connect):
        wire = await connect()
        body = b'{"n":1}'
        for deadline in (b"80", b"80", b"90", b"80", None, b"90"):
            named = {} if deadline is None else {"x_aliquot_deadline_ms": deadline.decode()}
            await wire.send(wire.head("POST", BLOCKING, Content_Length=len(body), **named) + body)
            assert (await wire.answer())[0] == 200
            expected = None if deadline is None else CallLimits(int(deadline) / 1000)
            assert limits_of(g.platform.calls[-1]) == expected
