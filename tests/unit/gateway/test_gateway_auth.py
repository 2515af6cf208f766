"""Authentication, permissions and rate limits."""

import asyncio
import base64

import pytest
from gateway_client import ACTIONS, AS_OPERATOR, NS, PUT, basic, gateway, on_a_loop

from aliquot.live.invocations.rate_limits import RateLimiters, RateLimits, steady_clock
from aliquot.live.store.records import Namespace, Quota

BLOCKING = f"{ACTIONS}/echo?blocking=true"
WRONG = (401, "The supplied authentication is invalid.")
UUID = "00000000-0000-4000-8000-000000000000"


def encoded(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("path", [BLOCKING, f"{ACTIONS}/echo", ACTIONS, f"{NS}/activations", f"{NS}/limits"])
@on_a_loop
async def test_without_a_valid_key_every_request_is_a_401(path):
    async with gateway() as g:
        uuid, _, secret = g.key.partition(":")
        headers = [
            {},
            {"authorization": ""},
            {"authorization": "Basic"},
            {"authorization": "Basic !!!"},
            {"authorization": encoded(uuid)},
            {"authorization": encoded(f"{uuid}:")},
            {"authorization": encoded(f"{uuid}:{secret}x")},
            {"authorization": encoded(f"{uuid}:{secret[:-1]}")},
            {"authorization": encoded(f"{UUID}:{secret}")},
            {"authorization": encoded(f":{secret}")},
            {"authorization": "Digest " + encoded(g.key)[6:]},
            {"authorization": encoded("x" * 5000)},
            AS_OPERATOR,
        ]
        g.auth = None
        for given in headers:
            method = "POST" if "blocking" in path else "GET"
            answer = await g.request(method, path, headers=given)
            assert (answer.status_code, answer.json()["error"]) == WRONG
            assert answer.headers["www-authenticate"] == 'Basic realm="OpenWhisk secure realm"'
            assert answer.json()["code"] == answer.headers["x-request-id"]
        assert g.platform.calls == []


@on_a_loop
async def test_the_scheme_is_case_insensitive_and_bearer_means_the_same():
    async with gateway() as g:
        g.auth = None
        for given in (encoded(g.key), encoded(g.key).replace("Basic", "bAsIc"), f"Bearer {g.key}"):
            assert (await g.say("GET", ACTIONS, headers={"authorization": given}))[0] == 200


@on_a_loop
async def test_two_different_credentials_are_refused():
    async with gateway() as g:
        for method, path in (("GET", ACTIONS), ("POST", BLOCKING)):
            headers = [("authorization", encoded(g.key)), ("authorization", encoded("x:y"))]
            text = "The header authorization was given more than once."
            assert await g.say(method, path, headers=headers, auth=None) == (400, text)


@on_a_loop
async def test_another_namespace_is_forbidden_whether_or_not_it_exists():
    async with gateway() as g:
        await g.catalogue.create_namespace("other")
        for name in ("other", "nobody"):
            text = f"The supplied authentication is not authorized to access '{name}"
            base = f"/api/v1/namespaces/{name}"
            for method in ("GET", "PUT", "DELETE", "POST"):
                assert await g.say(method, f"{base}/actions/echo", json=PUT) == (403, f"{text}/echo'.")
                named = "/p" if method in {"GET", "POST"} else "/p/echo"  # a package is read as a whole
                assert await g.say(method, f"{base}/actions/p/echo", json=PUT) == (403, f"{text}{named}'.")
            for collection in ("actions", "activations", "limits"):
                assert await g.say("GET", f"{base}/{collection}") == (403, f"{text}'.")
            some = "0" * 32
            assert await g.say("GET", f"{base}/activations/{some}/logs") == (403, f"{text}/{some}'.")
        assert await g.say("GET", "/api/v1/namespaces/a%2fb/actions") == (
            400,
            "The namespace contains illegal characters.",
        )
        long = f"/api/v1/namespaces/{'n' * 257}/actions"
        assert await g.say("GET", long) == (400, "Namespace longer than allowed: 257 > 256.")
        assert await g.say("POST", f"{long}/echo") == (400, "Namespace longer than allowed: 257 > 256.")


@on_a_loop
async def test_activations_of_others_are_a_404():
    async with gateway() as g:
        _, record = await g.say("POST", BLOCKING)
        other = basic(await g.catalogue.create_namespace("other"))
        for part in ("", "/logs", "/result"):
            path = f"{NS}/activations/{record['activationId']}{part}"
            assert (await g.say("GET", path, auth=other))[0] == 404
            assert (await g.say("GET", path))[0] == 200
        assert (await g.say("DELETE", f"{NS}/activations/{record['activationId']}", auth=other))[0] == 404
        assert await g.say("GET", f"{NS}/activations", auth=other) == (200, [])
        assert g.platform.cancelled == []


@on_a_loop
async def test_a_deleted_key_is_no_longer_valid():
    async with gateway() as g:
        assert (await g.say("POST", BLOCKING))[0] == 200
        second = await g.catalogue.add_key("guest", revoke_others=False)
        assert (await g.say("POST", BLOCKING))[0] == 200
        assert (await g.say("POST", BLOCKING, auth=basic(second)))[0] == 200
        third = await g.catalogue.add_key("guest", revoke_others=True)
        for old in (g.key, second):
            assert await g.say("POST", BLOCKING, auth=basic(old)) == WRONG
        assert (await g.say("POST", BLOCKING, auth=basic(third)))[0] == 200
        brief = g.catalogue.ephemeral_keys.issue("guest")
        assert (await g.say("POST", BLOCKING, auth=basic(brief)))[0] == 200
        generation = g.catalogue.generation
        g.catalogue.ephemeral_keys.forget(brief)
        assert await g.say("POST", BLOCKING, auth=basic(brief)) == WRONG
        assert g.catalogue.generation == generation, "sandboxes come and go: what is remembered of others stays"


# --- the operator ---------------------------------------------------------------------------------------------


@on_a_loop
async def test_the_operators_endpoints_require_the_operators_token():
    async with gateway() as g:
        routes = [endpoint for endpoint in g.app.endpoints if endpoint.access == "operator"]
        assert len(routes) >= 8
        for endpoint in routes:
            path = endpoint.path.format(name="guest", uuid="x", dataset="d", id="0" * 32)
            for given in ({}, {"authorization": encoded(g.key)}, {"authorization": "Bearer x"}):
                answer = await g.request(endpoint.method, path, headers=given, auth=None, json={})
                assert (answer.status_code, answer.json()["error"]) == WRONG
                assert answer.headers["www-authenticate"].startswith("Bearer ")
        assert await g.say("GET", "/operator/v1/status", headers=AS_OPERATOR, auth=None) == (200, g.platform.status())


def test_without_a_token_the_operators_endpoints_admit_no_caller():
    from aliquot.live.gateway.http.auth import OperatorAuth
    from aliquot.live.gateway.http.refusal import Refusal
    from aliquot.live.store.operator_token import OperatorToken

    for header in (None, b"Bearer ", b"Bearer"):
        with pytest.raises(Refusal):
            OperatorAuth(OperatorToken("")).check(header)


@on_a_loop
async def test_a_namespace_is_created_changed_and_deleted():
    async with gateway() as g:
        g.auth = None
        g.headers.update(AS_OPERATOR)
        base = "/operator/v1/namespaces"
        status, made = await g.say("POST", base, json={"name": "lab", "weight": 2, "invocationsPerMinute": 10})
        assert (status, made["namespace"]) == (201, "lab")
        assert (await g.say("GET", f"{ACTIONS}", auth=basic(made["key"])))[0] == 200
        assert await g.say("POST", base, json={"name": "lab"}) == (409, "namespace lab exists already")
        shown = {
            "name": "lab", "weight": 2.0, "invocationsPerMinute": 10, "concurrentInvocations": None,
            "firesPerMinute": None, "keptBytes": None, "volumeBytes": None, "actions": 0,
            "keys": [made["key"].partition(":")[0]],
            "created": g.catalogue.namespace("lab").created,
        }  # fmt: skip
        assert await g.say("GET", f"{base}/lab") == (200, shown)
        assert [item["name"] for item in (await g.say("GET", base))[1]] == ["guest", "lab"]
        assert g.platform.weights["lab"] == 2
        change = {"weight": 3, "invocationsPerMinute": None, "concurrentInvocations": 5}
        assert await g.say("PATCH", f"{base}/lab", json=change) == (200, shown | change)
        fires = {"firesPerMinute": 7}
        assert await g.say("PATCH", f"{base}/lab", json=fires) == (200, shown | change | fires)
        assert await g.say("PATCH", f"{base}/lab", json={"weight": 3}) == (200, shown | change | fires)
        assert g.platform.weights["lab"] == 3
        status, key = await g.say("POST", f"{base}/lab/keys", json={"keep": True})
        assert status == 201
        uuid = made["key"].partition(":")[0]
        assert (await g.say("DELETE", f"{base}/lab/keys/{uuid}"))[1]["keys"] == [key["key"].partition(":")[0]]
        assert await g.say("DELETE", f"{base}/lab/keys/{uuid}") == (404, "The requested resource does not exist.")
        assert await g.say("GET", ACTIONS, auth=basic(made["key"])) == WRONG
        await g.put(f"{ACTIONS}/x", json=PUT, auth=basic(key["key"]))
        assert (await g.say("DELETE", f"{base}/lab"))[0] == 200
        assert await g.say("GET", f"{base}/lab") == (404, "The requested resource does not exist.")
        assert ("lab", "x") not in g.platform.deployed
        assert await g.say("GET", ACTIONS, auth=basic(key["key"])) == WRONG


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"name": "a/b"}, "name: 'a/b' cannot name a namespace; it takes letters, digits and @ . & - _"),
        ({"name": "_"}, "name: '_' cannot name a namespace; it takes letters, digits and @ . & - _"),
        ({"name": ""}, "name: '' cannot name a namespace; it takes letters, digits and @ . & - _"),
        ({"name": "x", "weight": 0}, "weight: it takes a number from 1e-06 to 1e+06, not 0.0"),
        (
            {"name": "x", "invocationsPerMinute": -1},
            "quota.invocations_per_minute: it takes a number from 0 on, not -1",
        ),
        ({"name": "x", "wieght": 1}, "The request content was malformed:\nObject contains unknown field `wieght`"),
        ({}, "The request content was malformed:\nObject missing required field `name`"),
    ],
)  # fmt: skip
@on_a_loop
async def test_invalid_namespaces_are_refused(body, text):
    async with gateway() as g:
        g.auth = None
        answer = await g.say("POST", "/operator/v1/namespaces", json=body, headers=AS_OPERATOR)
        assert answer == (400, text)


# --- limits ---------------------------------------------------------------------------------------------------


@on_a_loop
async def test_invocations_per_minute_are_limited():
    async with gateway(invocations_per_minute=2) as g:
        now = 999_999_999.0  # a minute has 60 s from 999_999_960 on
        g.app.rate_limiters.limiter(g.catalogue.namespace("guest"))._invocations._clock = lambda: now
        assert [(await g.say("POST", BLOCKING))[0] for _ in range(2)] == [200, 200]
        text = "Too many requests in the last minute (count: {}, allowed: 2)."
        assert await g.say("POST", BLOCKING) == (429, text.format(3))
        assert await g.say("POST", f"{ACTIONS}/echo") == (429, text.format(4))
        now = 1_000_000_019.9
        assert await g.say("POST", BLOCKING) == (429, text.format(5))
        now = 1_000_000_020.0
        assert (await g.say("POST", BLOCKING))[0] == 200


@on_a_loop
async def test_concurrent_invocations_are_limited():
    async with gateway() as g:
        await g.catalogue.update_namespace("guest", lambda old: _with(old, Quota(concurrent_invocations=2)))
        g.platform.hold = True
        assert (await g.say("POST", f"{ACTIONS}/echo"))[0] == 202
        waiting = asyncio.create_task(g.say("POST", BLOCKING))
        await g.until_called(2)
        text = "Too many concurrent requests in flight (count: 2, allowed: 2)."
        assert await g.say("POST", BLOCKING) == (429, text)
        assert await g.say("POST", f"{ACTIONS}/echo") == (429, text)
        for call in list(g.platform.calls):
            g.platform.finish(call)
        assert (await waiting)[0] == 200
        assert (await g.say("POST", f"{ACTIONS}/echo"))[0] == 202


@on_a_loop
async def test_a_call_that_the_platform_refuses_is_not_counted_as_running():
    async with gateway(concurrent_invocations=1) as g:
        g.platform.complaint = "no"
        for path in (BLOCKING, f"{ACTIONS}/echo", BLOCKING):
            assert (await g.say("POST", path))[0] == 503
        g.platform.complaint = None
        assert (await g.say("POST", BLOCKING))[0] == 200


@on_a_loop
async def test_a_namespaces_own_limits_override_the_general_ones():
    async with gateway(invocations_per_minute=1) as g:
        await g.catalogue.update_namespace("guest", lambda old: _with(old, Quota(invocations_per_minute=100)))
        assert [(await g.say("POST", BLOCKING))[0] for _ in range(3)] == [200] * 3
        limits = (await g.say("GET", f"{NS}/limits"))[1]
        assert limits["invocationsPerMinute"] == 100
        assert limits["concurrentInvocations"] == 2147483647


def test_a_wall_clock_that_jumps_moves_no_minute(monkeypatch):
    clock = steady_clock()
    before = clock()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert 0 <= clock() - before < 3600


def test_a_namespace_without_limits_reads_no_clock():
    limiters = RateLimiters(RateLimits(), clock=lambda: pytest.fail("it was read"))
    limiters.limiter(Namespace("guest")).check()


def _with(namespace, quota):
    from msgspec.structs import replace

    return replace(namespace, quota=quota)
