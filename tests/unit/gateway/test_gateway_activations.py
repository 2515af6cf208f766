"""Activations over HTTP: single records, their parts, and lists."""

from urllib.parse import unquote

import pytest
from gateway_client import ACTIONS, NS, PUT, gateway, on_a_loop
from msgspec.structs import replace

from aliquot.live.node.base import Outcome, Status
from aliquot.testing.platform import START_MS

ALL = f"{NS}/activations"
GONE = (404, "The requested resource does not exist.")


@on_a_loop
async def test_an_activation_and_its_parts():
    async with gateway() as g:
        g.platform.answer = lambda _: Outcome(Status.SUCCESS, b'{"a":1}', 0.001, logs=("one", "two"))
        _, answered = await g.say("POST", f"{ACTIONS}/echo?blocking=true")
        path = f"{ALL}/{answered['activationId']}"
        assert await g.say("GET", path) == (200, {**answered, "logs": ["one", "two"]})
        assert await g.say("GET", f"{path}/") == (200, {**answered, "logs": ["one", "two"]})
        assert await g.say("GET", f"{path}/logs") == (200, {"logs": ["one", "two"]})
        result = {"status": "success", "success": True, "result": {"a": 1}, "size": 7}
        assert await g.say("GET", f"{path}/result") == (200, result)
        assert (await g.say("GET", f"{path}?result=perhaps"))[0] == 400
        assert "statusCode" not in answered
        annotations = {pair["key"]: pair["value"] for pair in answered["annotations"]}
        assert annotations["path"] == "guest/echo"
        assert annotations["kind"] == "python:3.11"
        assert annotations["limits"] == {"timeout": 60000, "memory": 256, "logs": 10, "concurrency": 1}
        assert {"timeout", "waitTime", "initTime", "deviceTime", "device", "policy", "reason"} <= set(annotations)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("abc", "Activation id length is 3 but must be 32."),
        ("0" * 33, "Activation id length is 33 but must be 32."),
        ("g" * 32, "The activation id is not valid."),
        ("A" * 32, "The activation id is not valid."),
        ("%C3%A9" * 32, "The activation id is not valid."),
        ("%D9%A3" * 32, "The activation id is not valid."),
    ],
)
@on_a_loop
async def test_invalid_ids_are_refused(given, text):
    async with gateway() as g:
        for part in ("", "/logs", "/result"):
            assert await g.say("GET", f"{ALL}/{given}{part}") == (400, text)
        assert await g.say("DELETE", f"{ALL}/{given}") == (400, text)


@on_a_loop
async def test_a_clock_behind_the_namespaces_creation_hides_no_record():
    async with gateway() as g:
        await g.catalogue.update_namespace("guest", lambda old: replace(old, created=2 * START_MS))
        _, answered = await g.say("POST", f"{ACTIONS}/echo?blocking=true")
        assert [one["activationId"] for one in (await g.say("GET", ALL))[1]] == [answered["activationId"]]
        assert (await g.say("GET", f"{ALL}/{answered['activationId']}"))[0] == 200


@on_a_loop
async def test_a_namespace_made_anew_sees_nothing_of_the_old_one_whatever_the_clock_says():
    async with gateway() as g:
        old = await g.beside("phoenix")
        await old.put(f"{ACTIONS}/echo", json=PUT)
        _, ended = await old.say("POST", f"{ACTIONS}/echo?blocking=true")  # in the far future
        g.platform.hold = True
        _, running = await old.say("POST", f"{ACTIONS}/echo")
        await g.catalogue.delete_namespace("phoenix")
        new = await g.beside("phoenix")
        assert await new.say("GET", ALL) == (200, [])
        assert await new.say("GET", f"{ALL}?count=true") == (200, {"activations": 0})
        for one in (ended, running):
            assert await new.say("GET", f"{ALL}/{one['activationId']}") == GONE
            assert await new.say("DELETE", f"{ALL}/{one['activationId']}") == GONE
        following = await new.get(f"{ALL}/{running['activationId']}", headers={"accept": "text/event-stream"})
        assert following.status_code == 404


@on_a_loop
async def test_a_running_activation_has_no_record_yet():
    async with gateway() as g:
        for part in ("", "/logs", "/result"):
            assert await g.say("GET", f"{ALL}/{'0' * 32}{part}") == GONE
        assert await g.say("GET", f"{ALL}/{'0' * 32}/other") == GONE


@on_a_loop
async def test_lists_are_filtered_and_paged_newest_first():
    async with gateway() as g:
        await g.put(f"{ACTIONS}/other", json=PUT)
        for name in ("echo", "other", "echo"):  # they start at START_MS + 1, + 2, + 3
            await g.post(f"{ACTIONS}/{name}?blocking=true")
        listed = (await g.get(ALL)).json()
        assert [item["start"] - START_MS for item in listed] == [3, 2, 1]
        assert set(listed[0]) == {
            "namespace", "name", "version", "publish", "annotations", "activationId", "start", "end", "duration",
            "statusCode",
        }  # fmt: skip

        async def starts(query):
            return [item["start"] - START_MS for item in (await g.get(f"{ALL}?{query}")).json()]

        assert await starts("name=echo") == [3, 1]
        assert await starts("name=pkg/echo") == []
        assert await starts("name=") == await starts("name=%20") == [3, 2, 1]
        assert await starts("name=/echo") == [3, 1]
        assert await starts(f"since={START_MS + 2}") == [3, 2]
        assert await starts(f"upto={START_MS + 2}") == [2, 1]
        assert await starts(f"since={START_MS + 2}&upto={START_MS + 2}") == [2]
        assert await starts("limit=1") == [3]
        assert await starts("skip=1&limit=1") == [2]
        assert await starts("skip=5") == []
        assert (await g.get(f"{ALL}?count=true")).json() == {"activations": 3}
        assert (await g.get(f"{ALL}?count=true&name=echo&skip=1")).json() == {"activations": 1}
        full = (await g.get(f"{ALL}?docs=true&limit=1")).json()
        assert full == [(await g.get(f"{ALL}/{listed[0]['activationId']}")).json()]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("docs=true&count=true", "The parameter 'docs' is not permitted with 'count'."),
        *(
            (
                f"name={name}",
                (
                    "The query parameter 'name' was malformed:\n"
                    f"Parameter may be a 'simple' name or 'package-name/simple' name: {unquote(name)}"
                ),
            )
            for name in ("a/b/c", "0%20", "//")
        ),
        (
            "since=yesterday",
            "The query parameter 'since' was malformed:\nParameter is not a valid value for epoch seconds: yesterday",
        ),
        (
            "upto=99999999999999999999",
            (
                "The query parameter 'upto' was malformed:\n"
                "Parameter is not a valid value for epoch seconds: 99999999999999999999"
            ),
        ),
    ],
)
@on_a_loop
async def test_invalid_lists_are_refused(query, text):
    async with gateway() as g:
        assert await g.say("GET", f"{ALL}?{query}") == (400, text)


@on_a_loop
async def test_cancelling_ends_a_running_call_and_leaves_an_ended_one_alone():
    async with gateway() as g:
        g.platform.hold = True
        activation_id = (await g.say("POST", f"{ACTIONS}/echo"))[1]["activationId"]
        assert await g.say("DELETE", f"{ALL}/{activation_id}") == (202, {"activationId": activation_id})
        assert g.platform.cancelled == [activation_id]
        assert await g.say("DELETE", f"{ALL}/{'0' * 32}") == GONE
