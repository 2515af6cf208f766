"""Web actions on a slow, busy or refusing platform, and requests that are too large or too slow."""

import asyncio
import json

from gateway_client import ACTIONS, PUT, gateway, on_a_loop

from aliquot.live.gateway.http.refusal import OVERLOADED
from aliquot.live.gateway.web.responses import NOT_READY
from aliquot.live.gateway.web.running import SMALL_BYTES
from aliquot.live.invocations.errors import NOT_ALLOWED_PARAMETERS
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.records import Quota

WEB = PUT | {"annotations": [{"key": "web-export", "value": True}]}
ECHO = "/api/v1/web/guest/default/echo"


def web_gateway(**settings):
    return gateway(action=WEB, **settings)


def limiter(g):
    return g.app.rate_limiters.limiter(g.catalogue.namespace("guest"))


@on_a_loop
async def test_a_long_run_is_a_202_with_its_id_and_continues():
    async with web_gateway(blocking_ms=10) as g:
        g.platform.hold = True
        answer = await g.get(ECHO)
        (call,) = g.platform.calls
        assert answer.status_code == 202
        assert answer.json() == {"error": NOT_READY, "code": answer.headers["x-request-id"]}
        assert answer.headers["x-openwhisk-activation-id"] == call.id
        assert g.platform.detached == [call.id]
        assert limiter(g).running == 1
        g.platform.finish(call)
        assert limiter(g).running == 0


@on_a_loop
async def test_a_caller_that_disconnects_does_not_affect_the_run():
    async with web_gateway() as g:
        g.platform.hold = True
        asking = asyncio.create_task(g.get(ECHO))
        await g.until_called()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert limiter(g).running == 1
        g.platform.finish(g.platform.calls[0])
        assert limiter(g).running == 0
        assert not g.platform.cancelled


@on_a_loop
async def test_a_refusal_of_the_platform_is_a_503():
    async with web_gateway() as g:
        g.platform.complaint = "the disk is full"
        assert await g.say("GET", ECHO) == (503, "the disk is full")
        assert limiter(g).running == 0


@on_a_loop
async def test_exceeding_the_owners_concurrency_is_a_429():
    async with web_gateway() as g:
        await g.catalogue.update_namespace("guest", lambda old: type(old)(old.name, old.keys, 1, Quota(None, 1)))
        g.platform.hold = True
        first = asyncio.create_task(g.get(ECHO))
        await g.until_called()
        text = "Too many concurrent requests in flight (count: 1, allowed: 1)."
        assert await g.say("GET", ECHO) == (429, text)
        assert (await g.options(ECHO)).status_code == 200
        g.platform.finish(g.platform.calls[0])
        assert (await first).status_code == 204


@on_a_loop
async def test_a_body_that_is_or_becomes_too_large_is_a_413():
    async with web_gateway(payload_bytes=1000) as g:
        octets = {"content-type": "application/octet-stream"}
        status, text = await g.say("POST", ECHO, content=b"x" * 2000, headers=octets)
        assert (status, text) == (413, "Request larger than allowed: 2000 > 1000 bytes.")
        status, text = await g.say("POST", ECHO, content=b"x" * 990, headers=octets)  # base64 is longer than the body
        assert status == 413
        assert not g.platform.calls


@on_a_loop
async def test_a_web_request_without_its_body_is_a_408():
    async def trickle():
        yield b"x"
        await asyncio.sleep(60)
        yield b"y"

    async with web_gateway(body_s=0.02) as g:
        status, _ = await g.say("POST", ECHO, content=trickle())
        assert status == 408


@on_a_loop
async def test_a_failure_of_the_platform_reveals_no_details():
    async with web_gateway() as g:
        g.platform.answer = lambda _: Outcome(Status.INTERNAL_ERROR, b'{"error":"node 7 is on fire"}', 0)
        assert await g.say("GET", ECHO) == (400, "There was an error processing your request.")


@on_a_loop
async def test_init_parameters_are_not_arguments():
    async with web_gateway() as g:
        body = WEB | {"parameters": [{"key": "token", "value": "t", "init": True}, {"key": "p", "value": 1}]}
        await g.put(f"{ACTIONS}/echo?overwrite=true", json=body)
        answer = (await g.get(f"{ECHO}.json", params={"q": "2"})).json()
        assert (answer["p"], answer["q"]) == (1, "2")
        assert "token" not in answer


@on_a_loop
async def test_the_memory_for_bodies_without_a_key_is_limited():
    async with web_gateway(web_payload_bytes=2 * SMALL_BYTES) as g:
        g.auth = None
        g.platform.hold = True
        large = {"content": b"x" * (SMALL_BYTES + 1), "headers": {"content-type": "text/plain"}}
        asking = [asyncio.create_task(g.post(ECHO, **large)) for _ in range(20)]
        await g.until_called(15)
        assert await g.say("POST", ECHO, **large) == (503, OVERLOADED)
        small = asyncio.create_task(g.get(ECHO))
        await g.until_called(16)
        g.platform.hold = False
        for call in g.platform.calls:
            g.platform.finish(call)
        statuses = [answer.status_code for answer in await asyncio.gather(*asking)]
        assert (statuses.count(204), statuses.count(503)) == (15, 5)
        assert (await small).status_code == 204
        assert (await g.post(ECHO, **large)).status_code == 204


@on_a_loop
async def test_callers_with_a_key_may_send_larger_bodies():
    async with web_gateway(web_payload_bytes=1000) as g:
        large = {"content": b"x" * 2000, "headers": {"content-type": "text/plain"}}
        assert (await g.post(ECHO, **large)).status_code == 204
        text = "Request larger than allowed: 2000 > 1000 bytes."
        assert await g.say("POST", ECHO, **large, auth=None) == (413, text)


LARGE = {"big": "x" * 2**21}


async def large(g, value, path=ECHO + ".json", **more):
    """Yield the body in parts, as a network would."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()

    async def parts():
        for begin in range(0, len(content), 2**16):
            yield content[begin : begin + 2**16]

    answer = await g.post(path, content=parts(), headers={"content-type": "application/json"}, **more)
    body = answer.json()
    return answer.status_code, body.get("error", body)


@on_a_loop
async def test_large_json_becomes_arguments_like_small_json():
    async with web_gateway() as g:
        parameters = [{"key": "p", "value": 1}, {"key": "q", "value": 2}, {"key": "r", "value": 3}]
        await g.put(f"{ACTIONS}/echo?overwrite=true", json=WEB | {"parameters": parameters})
        status, args = await large(g, LARGE | {"q": "body", "s": None}, params={"p": "query", "q": "query"})
        assert status == 200
        assert (args["p"], args["q"], args["r"], args["s"]) == ("query", "body", 3, None)
        assert args["big"] == LARGE["big"]
        assert args["__ow_method"] == "post"
        status, args = await large(g, ["x" * 2**21])
        assert args["__ow_body"] == ["x" * 2**21]
        status, args = await large(g, b" " * 2**21 + b"{}")
        assert (status, args["p"]) == (200, 1)


@on_a_loop
async def test_large_json_is_refused_like_small_json():
    async with web_gateway() as g:
        final = [*WEB["annotations"], {"key": "final", "value": True}]
        body = WEB | {"annotations": final, "parameters": [{"key": "fixed", "value": 1}]}
        await g.put(f"{ACTIONS}/echo?overwrite=true", json=body)
        for name in ("__ow_user", "__ow_body", "fixed"):
            assert await large(g, LARGE | {name: 1}) == (400, NOT_ALLOWED_PARAMETERS)
        whole = json.dumps(LARGE).encode()
        for wrong in (whole[:-1], whole + b"x", whole.replace(b"x", b"\xff", 1), b"[" + whole, b"[" * 2**21):
            status, text = await large(g, wrong)
            assert status == 400
            assert text.startswith("The request content was malformed:")
        assert not g.platform.calls
