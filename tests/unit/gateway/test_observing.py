"""The state of the platform for those who look: ten thousand functions, readers that are slow, and other namespaces."""

import asyncio
import json

import pytest
from gateway_client import AS_OPERATOR, OPERATOR, gateway, on_a_loop

from aliquot.live.gateway.http.events import ResponseLimits, TickStream
from aliquot.live.gateway.resources.overview import MAX_FLOWS, MAX_LISTENERS_PER_TENANT, for_namespace, for_operator
from aliquot.live.gateway.settings import GatewaySettings

FLOW = {"weight": 1, "queued": 0, "in_flight": 0, "arrivals": 0, "run_estimate_s": None, "sandboxes": 0, "misfit": None}


def status(flows, tenant="guest"):
    busy = {"queued": 3, "arrivals": 7}
    named = [{**FLOW, "tenant": tenant, "function": f"f{n}", **(busy if n == flows - 1 else {})} for n in range(flows)]
    sandbox = {"sandbox": 1, "tenant": tenant, "function": "f0", "device": "gpu", "state": "busy", "uses": 3, "pid": 12}
    return {"devices": [{"name": "gpu"}], "flows": named, "sandboxes": [sandbox], "pid": 1, "policies": ["fcfs"]}


def test_of_ten_thousand_functions_the_busiest_are_shown():
    for seen in (for_operator(status(10_000)), for_namespace(status(10_000), "guest")):
        assert (seen["flow_count"], len(seen["flows"]), seen["queued"]) == (10_000, MAX_FLOWS, 3)
        assert seen["flows"][0]["function"] == "f9999"
        assert len(json.dumps(seen)) < 200_000
        assert "pid" not in json.dumps(seen)


def test_others_are_numbers_without_names():
    seen = for_namespace(status(5, tenant="secretive"), "guest")
    assert "secretive" not in json.dumps(seen)
    assert (seen["flows"], seen["sandboxes"], seen["queued_others"]) == ([], [], 3)
    assert seen["devices"][0]["others"] == 1


def parts(**values):
    return {name: json.dumps(value).encode() for name, value in values.items()}


@on_a_loop
async def test_a_slow_reader_misses_ticks_and_gets_what_has_changed_meanwhile():
    events, sent, ready = TickStream(ResponseLimits(GatewaySettings()), "t"), [], asyncio.Event()
    events.open("guest")
    assert events.tick(parts(a=1, b=1))
    assert not events.tick(parts(a=2, b=1))  # the first one is not read yet

    async def send(message):
        sent.append(message.get("body", b""))
        if b"tick" in message.get("body", b""):
            await ready.wait()

    async def receive():
        await asyncio.Event().wait()

    sending = asyncio.create_task(events.send(receive, send, ()))
    while not any(b"tick" in body for body in sent):
        await asyncio.sleep(0)
    assert events.tick(parts(a=3, b=1))  # there is room for one while the reader takes the first
    assert not any(events.tick(parts(a=number, b=2)) for number in range(4, 1000))
    ready.set()
    while sum(body.count(b"event: tick") for body in sent) < 2:
        await asyncio.sleep(0)
    assert events.tick(parts(a=3, b=2))
    while sum(body.count(b"event: tick") for body in sent) < 3:
        await asyncio.sleep(0)
    sending.cancel()
    told = [json.loads(line[6:]) for body in sent for line in body.split(b"\n") if line.startswith(b"data: {")]
    assert told[:3] == [{"a": 1, "b": 1}, {"a": 3}, {"b": 2}]


@on_a_loop
async def test_a_namespace_has_so_many_streams():
    limits = ResponseLimits(GatewaySettings())
    async with gateway() as g:
        endpoint = next(each for each in g.app.endpoints if each.path == "/api/v1/observe/stream")
        overview = endpoint.handler.__self__
        opened = [TickStream(limits, "t") for _ in range(MAX_LISTENERS_PER_TENANT)]
        overview._listeners.update(dict.fromkeys(opened, "guest"))
        refused = await g.get("/api/v1/observe/stream")
        assert refused.status_code == 429
        assert f"{MAX_LISTENERS_PER_TENANT} are allowed" in refused.json()["error"]


@pytest.mark.parametrize(
    "route", ["overview", "stream", "activations", "decisions", "slices", "series", "figures?name=f"]
)
@on_a_loop
async def test_every_route_asks_who_it_is(route):
    async with gateway() as g:
        for wrong in ("Basic bm9ib2R5Om5vdGhpbmc=", f"Basic {OPERATOR}", "Bearer wrong", "Bearer"):
            answer = await g.get(f"/api/v1/observe/{route}", headers={"Authorization": wrong}, auth=None)
            assert answer.status_code == 401


@on_a_loop
async def test_the_operators_token_shows_all_and_its_routes_are_not_for_keys():
    async with gateway() as g:
        assert (await g.get("/api/v1/observe/overview", headers=AS_OPERATOR, auth=None)).json()["sandboxes"][0][
            "tenant"
        ]
        assert (await g.get("/operator/v1/settings")).status_code == 401
        assert (await g.get("/operator/v1/doctor")).status_code == 401
        shown = (await g.get("/operator/v1/settings", headers=AS_OPERATOR, auth=None)).json()
        assert shown["store"]["problem"] is None


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("activations?status=odd", "status"),
        ("activations?limit=0", "limit"),
        ("activations?wait=-1", "wait"),
        ("activations?since=soon", "since"),
        ("series?names=arrivals,odd", "names"),
        ("series?step=7", "step"),
        ("slices?last=1e9", "last"),
        ("figures", "name"),
    ],
)
@on_a_loop
async def test_a_wrong_parameter_is_named(query, named):
    async with gateway() as g:
        answer = await g.get(f"/api/v1/observe/{query}")
        assert answer.status_code == 400
        assert f"'{named}'" in answer.json()["error"]


@on_a_loop
async def test_without_a_journal_the_past_is_refused_with_the_reason():
    async with gateway() as g:
        answer = await g.get("/api/v1/observe/activations")
        assert answer.status_code == 503
        assert "keeps no journal" in answer.json()["error"]
