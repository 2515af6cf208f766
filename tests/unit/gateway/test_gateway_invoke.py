"""Invocations through the gateway: statuses, bodies and headers."""

import asyncio
import json

import pytest
from gateway_client import ACTIONS, NS, PUT, gateway, on_a_loop

from aliquot.live.invocations.call import Call
from aliquot.live.node.base import Outcome, Status

ECHO = f"{ACTIONS}/echo"
BLOCKING = f"{ECHO}?blocking=true"
RESULT = f"{ECHO}?blocking=true&result=true"
MALFORMED = "The request content was malformed:\n"
PICKLE = "application/x-aliquot-pickle"


def with_parameters(*parameters, **annotations):
    listed = [{"key": key.replace("_", "-"), "value": value} for key, value in annotations.items()]
    return {**PUT, "parameters": list(parameters), "annotations": listed}


@on_a_loop
async def test_a_blocking_call_answers_with_the_whole_record():
    async with gateway() as g:
        answer = await g.post(BLOCKING, json={"a": 1})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        record = answer.json()
        assert record["response"] == {"status": "success", "success": True, "result": {"a": 1}, "size": 7}
        assert record["activationId"] == answer.headers["x-openwhisk-activation-id"] == g.platform.calls[0].id
        assert {**record, "annotations": [], "activationId": "", "response": {}, "start": 0, "end": 0} == {
            "namespace": "guest", "name": "echo", "version": "0.0.1", "subject": "guest", "activationId": "",
            "start": 0, "end": 0, "duration": 1, "publish": False, "logs": [], "annotations": [], "response": {},
        }  # fmt: skip
        stored = await g.get(f"{NS}/activations/{record['activationId']}")
        assert stored.json() == record


@on_a_loop
async def test_result_returns_the_result_alone():
    async with gateway() as g:
        assert await g.say("POST", RESULT, json={"a": 1}) == (200, {"a": 1})
        assert await g.say("POST", RESULT.replace("/_/", "/guest/"), json={"a": 1}) == (200, {"a": 1})


@on_a_loop
async def test_an_array_is_returned_without_the_record():
    async with gateway() as g:
        g.platform.answer = lambda _: Outcome(Status.SUCCESS, b"[1,2]", 0.001)
        assert await g.say("POST", BLOCKING) == (200, [1, 2])


@pytest.mark.parametrize(
    ("status", "http", "text"),
    [
        (Status.APPLICATION_ERROR, 502, "application error"),
        (Status.DEVELOPER_ERROR, 502, "action developer error"),
        (Status.INTERNAL_ERROR, 500, "whisk internal error"),
    ],
)
@on_a_loop
async def test_failures_have_a_status_and_a_record_without_code(status, http, text):
    async with gateway() as g:
        g.platform.answer = lambda _: Outcome(status, b'{"error":"why"}', 0.001)
        assert await g.say("POST", RESULT) == (http, {"error": "why"})
        code, record = await g.say("POST", BLOCKING)
        assert code == http
        assert record["response"] == {"status": text, "success": False, "result": {"error": "why"}, "size": 15}
        assert "code" not in record
        listed = (await g.get(f"{NS}/activations")).json()
        assert [item["statusCode"] for item in listed] == [status, status]


@on_a_loop
async def test_logs_are_in_the_stored_record_and_not_in_the_response():
    async with gateway() as g:
        g.platform.answer = lambda _: Outcome(Status.SUCCESS, b"{}", 0.001, logs=("2026 stdout: hi", '"'))
        _, record = await g.say("POST", BLOCKING)
        assert record["logs"] == []
        path = f"{NS}/activations/{record['activationId']}"
        assert (await g.get(path)).json()["logs"] == ["2026 stdout: hi", '"']


@on_a_loop
async def test_without_blocking_the_id_comes_back_once_the_call_is_durable():
    async with gateway() as g:
        g.platform.hold = True
        answer = await g.post(ECHO, json={})
        call = g.platform.calls[0]
        assert (answer.status_code, answer.json()) == (202, {"activationId": call.id})
        assert answer.headers["x-openwhisk-activation-id"] == call.id
        assert [accepted.id for accepted in await g.store.unfinished()] == [call.id]
        assert call.durable
        assert (await g.say("GET", f"{NS}/activations/{call.id}"))[0] == 404
        g.platform.finish(call)
        assert (await g.say("GET", f"{NS}/activations/{call.id}"))[0] == 200


@pytest.mark.parametrize("settings", [{"blocking_ms": 1}, {"blocking_ms": 60_000}])
@on_a_loop
async def test_a_caller_waits_no_longer_than_it_may_and_the_run_goes_on(settings):
    async with gateway(**settings) as g:
        g.platform.hold = True
        timeout = "&timeout=1" if settings["blocking_ms"] > 1 else ""
        answer = await g.post(BLOCKING + timeout)
        call = g.platform.calls[0]
        assert (answer.status_code, answer.json()) == (202, {"activationId": call.id})
        assert answer.headers["x-openwhisk-activation-id"] == call.id
        assert g.platform.detached == [call.id]
        g.platform.finish(call)
        assert (await g.say("GET", f"{NS}/activations/{call.id}"))[0] == 200
        assert g.app.invoke.waiting == 0


@on_a_loop
async def test_a_result_that_arrives_during_the_timeout_is_returned():
    async with gateway() as g:
        g.platform.hold = True

        async def detach(call):
            g.platform.finish(call)

        g.platform.detach = detach
        assert (await g.say("POST", RESULT + "&timeout=1", json={"a": 1})) == (200, {"a": 1})


@on_a_loop
async def test_a_timeout_that_cannot_be_made_durable_is_reported():
    async with gateway() as g:
        g.platform.hold = True

        async def detach(_):
            from aliquot.live.invocations.errors import OverloadedError

            raise OverloadedError("the disk is full")

        g.platform.detach = detach
        answer = await g.post(BLOCKING + "&timeout=1")
        assert (answer.status_code, answer.json()["error"]) == (503, "the disk is full")
        assert answer.headers["x-openwhisk-activation-id"] == g.platform.calls[0].id


@pytest.mark.parametrize("wait", ["0", "60001", "-1", "x", "1.5", ""])
@on_a_loop
async def test_timeouts_out_of_range_are_refused(wait):
    async with gateway() as g:
        text = "The query parameter 'timeout' was malformed:\nTimeout must be number of milliseconds up to 60000."
        assert await g.say("POST", f"{BLOCKING}&timeout={wait}") == (400, text)
        assert g.platform.calls == []


@on_a_loop
async def test_a_setting_lets_callers_wait_longer():
    async with gateway(blocking_most_ms=600_000) as g:
        assert (await g.say("POST", f"{BLOCKING}&timeout=600000"))[0] == 200


@on_a_loop
async def test_callers_may_wait_up_to_the_actions_time_limit():
    async with gateway(action={**PUT, "limits": {"timeout": 300_000}}) as g:
        assert (await g.say("POST", f"{BLOCKING}&timeout=300000"))[0] == 200
        text = "The query parameter 'timeout' was malformed:\nTimeout must be number of milliseconds up to 300000."
        assert await g.say("POST", f"{BLOCKING}&timeout=300001") == (400, text)


@pytest.mark.parametrize("name", ["blocking", "result"])
@on_a_loop
async def test_invalid_flags_are_refused(name):
    async with gateway() as g:
        text = f"The query parameter '{name}' was malformed:\n'perhaps' is not a valid Boolean value"
        assert await g.say("POST", f"{ECHO}?{name}=perhaps") == (400, text)


@on_a_loop
async def test_flags_have_several_spellings():
    async with gateway() as g:
        for true in ("true", "True", "1", "yes", "on"):
            assert await g.say("POST", f"{ECHO}?blocking={true}&result={true}&other=1") == (200, {})


# --- parameters -----------------------------------------------------------------------------------------------


@on_a_loop
async def test_the_payload_overrides_parameters_and_init_parameters_are_left_out():
    put = with_parameters(
        {"key": "a", "value": 1}, {"key": "b", "value": {"x": [1.5]}}, {"key": "secret", "value": "s", "init": True}
    )
    async with gateway(action=put) as g:
        assert await g.say("POST", RESULT, json={"a": 2, "c": 3}) == (200, {"a": 2, "b": {"x": [1.5]}, "c": 3})
        assert await g.say("POST", RESULT) == (200, {"a": 1, "b": {"x": [1.5]}})


@on_a_loop
async def test_a_payload_is_passed_on_byte_by_byte():
    body = b' { "big": 123456789012345678901234567890, "f": 1.0e2, "u": "\xc3\xa9" } '
    async with gateway() as g:
        await g.post(BLOCKING, content=body, headers={"content-type": "application/json"})
        assert g.platform.calls[0].payload == body


@on_a_loop
async def test_final_parameters_cannot_be_overridden():
    put = with_parameters({"key": "a", "value": 1}, {"key": "open", "value": None}, final=True)
    async with gateway(action=put) as g:
        text = "Request defines parameters that are not allowed (e.g., reserved properties)."
        assert await g.say("POST", RESULT, json={"a": 2}) == (400, text)
        assert await g.say("POST", RESULT, json={"open": 2, "b": 3}) == (200, {"a": 1, "open": 2, "b": 3})


@on_a_loop
async def test_an_update_takes_effect_with_the_next_call():
    async with gateway() as g:
        assert await g.say("POST", RESULT) == (200, {})
        change = {"parameters": [{"key": "a", "value": 1}]}
        await g.put(f"{ECHO}?overwrite=true", json=change)
        assert await g.say("POST", RESULT) == (200, {"a": 1})
        assert g.platform.calls[0].action.revision != g.platform.calls[1].action.revision


# --- bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"content": b"{}"},
        {"content": b"{}", "headers": {"content-type": "application/json"}},
        {"content": b"{}", "headers": {"content-type": "Application/JSON ; charset=UTF-8"}},
        {"content": b"", "headers": {"content-type": "text/plain"}},
    ],
)
@on_a_loop
async def test_valid_bodies_are_accepted(more):
    async with gateway() as g:
        assert await g.say("POST", RESULT, **more) == (200, {})


@on_a_loop
async def test_null_is_an_empty_payload():
    """`wsk` sends null if there are no arguments."""
    async with gateway(action=with_parameters({"key": "p", "value": 1})) as g:
        for body in (b"null", b" null\n"):
            headers = {"content-type": "application/json"}
            assert (await g.say("POST", BLOCKING, content=body, headers=headers))[0] == 200
        assert [call.payload for call in g.platform.calls] == [b'{"p":1}'] * 2


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[1]", "Object expected"),
        (b'"x"', "Object expected"),
        (b"{", "Input data was truncated"),
        (b"{'a':1}", "JSON is malformed: object keys must be strings (byte 1)"),
        (b'{"a":1}{"b":2}', "JSON is malformed: trailing characters (byte 8)"),
        (b'{"a":NaN}', "JSON is malformed: invalid character (byte 5)"),
        (b'{"a":"\xff"}', "'utf-8' codec can't decode byte 0xff in position 6: invalid start byte"),
        (b'{"a":' + b"[" * 100_000, "JSON is nested too deeply"),
        (b'{"a":' * 100_000, "JSON is nested too deeply"),
        (b" ", "Input data was truncated"),
    ],
)
@on_a_loop
async def test_bodies_that_are_not_an_object_are_refused(body, why):
    for put in (PUT, with_parameters({"key": "p", "value": 1})):
        async with gateway(action=put) as g:
            headers = {"content-type": "application/json"}
            assert await g.say("POST", BLOCKING, content=body, headers=headers) == (400, MALFORMED + why)
            assert g.platform.calls == []


@on_a_loop
async def test_other_content_types_are_refused():
    text = "The request's Content-Type is not supported. Expected:\napplication/json"
    async with gateway() as g:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ";"):
            answer = await g.say("POST", BLOCKING, content=b"{}", headers={"content-type": kind})
            assert answer == (415, text)
            for body in (b"{}", b""):
                answer = await g.say("PUT", f"{ACTIONS}/new", content=body, headers={"content-type": kind})
                assert answer == (415, text)
            assert (await g.say("POST", f"{ACTIONS}/echo", headers={"content-type": kind}))[0] == 202  # no body


@on_a_loop
async def test_a_payload_that_is_too_large_is_refused_with_its_size():
    async with gateway(payload_bytes=100) as g:
        body = json.dumps({"a": "x" * 100}).encode()
        text = f"Request larger than allowed: {len(body)} > 100 bytes."
        assert await g.say("POST", BLOCKING, content=body) == (413, text)
        assert g.platform.calls == []


# --- pickled arguments ----------------------------------------------------------------------------------------


@on_a_loop
async def test_pickled_arguments_are_passed_on_unchanged_and_the_result_is_pickled():
    async with gateway(action=with_parameters({"key": "p", "value": 1}, sdk=True)) as g:
        g.platform.answer = lambda call: Outcome(Status.SUCCESS, b"{}", 0.001, pickled=call.payload + b"!")
        answer = await g.post(BLOCKING, content=b"\x80\x05K\x01.", headers={"content-type": PICKLE})
        assert (answer.status_code, answer.content) == (200, b"\x80\x05K\x01.!")
        assert answer.headers["content-type"] == PICKLE
        assert answer.headers["x-aliquot-status"] == "0"
        assert g.platform.calls[0].pickled
        activation_id = answer.headers["x-openwhisk-activation-id"]
        path = f"{NS}/activations/{activation_id}/result"
        again = await g.get(path, headers={"accept": PICKLE})
        assert (again.status_code, again.content) == (200, b"\x80\x05K\x01.!")
        assert again.headers["content-type"] == PICKLE
        assert again.headers["x-aliquot-status"] == "0"
        assert again.headers["x-openwhisk-activation-id"] == activation_id
        assert (await g.get(path)).json()["result"] == {}


@on_a_loop
async def test_a_run_without_a_pickled_result_is_answered_in_json():
    async with gateway(action=with_parameters(sdk=True)) as g:
        g.platform.answer = lambda _: Outcome(Status.DEVELOPER_ERROR, b'{"error":"exited"}', 0.001)
        answer = await g.post(BLOCKING, content=b"x", headers={"content-type": PICKLE})
        assert answer.status_code == 502
        assert answer.headers["x-aliquot-status"] == "2"
        assert answer.json()["response"]["result"] == {"error": "exited"}
        path = f"{NS}/activations/{answer.json()['activationId']}/result"
        again = await g.get(path, headers={"accept": PICKLE})
        assert (again.headers["x-aliquot-status"], again.json()["result"]) == ("2", {"error": "exited"})


@on_a_loop
async def test_pickled_arguments_are_for_the_sdks_own_functions():
    async with gateway() as g:
        text = "Pickled arguments are for workflows and functions that the SDK deployed (annotation sdk: true)."
        assert await g.say("POST", BLOCKING, content=b"x", headers={"content-type": PICKLE}) == (415, text)


# --- refusals and failures ------------------------------------------------------------------------------------


@on_a_loop
async def test_an_overloaded_platform_is_a_503():
    async with gateway() as g:
        g.platform.complaint = "the platform is stopping"
        for path in (BLOCKING, ECHO):
            assert await g.say("POST", path) == (503, "the platform is stopping")
        g.platform.complaint = None
        assert (await g.say("POST", BLOCKING))[0] == 200


@on_a_loop
async def test_a_call_that_is_refused_later_is_a_503_with_the_reason():
    async with gateway() as g:
        g.platform.hold = True
        waiting = asyncio.create_task(g.say("POST", BLOCKING))
        await g.until_called()
        call = g.platform.calls[0]
        call.reason = "no device is left"
        call.done(call)
        assert await waiting == (503, "no device is left")


@on_a_loop
async def test_an_error_of_the_platform_is_a_500():
    async with gateway() as g:

        def broken(_: Call) -> None:
            raise ZeroDivisionError

        g.platform.submit = broken
        assert await g.say("POST", BLOCKING) == (500, "There was an internal server error.")


@on_a_loop
async def test_a_disconnected_caller_leaves_nothing_behind():
    async with gateway() as g:
        g.platform.hold = True
        waiting = asyncio.create_task(g.post(BLOCKING, json={}))
        await g.until_called()
        assert g.app.invoke.waiting == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert g.app.invoke.waiting == 0
        call = g.platform.calls[0]
        g.platform.finish(call)
        assert (await g.say("GET", f"{NS}/activations/{call.id}"))[0] == 200


@on_a_loop
async def test_ids_are_all_different():
    async with gateway() as g:
        for _ in range(600):
            await g.post(BLOCKING)
        assert len({call.id for call in g.platform.calls}) == 600
        assert all(len(call.id) == 32 and int(call.id, 16) >= 0 for call in g.platform.calls)
