"""Actions over HTTP: creation, updates, and refusals with their exact texts."""

import base64

import pytest
from gateway_client import ACTIONS, NS, PUT, gateway, on_a_loop

from aliquot.live.catalogue.needs import ANNOTATIONS
from aliquot.live.gateway.settings import Range

NAME_TEXT = "The name of the entity contains illegal characters."
GONE = (404, "The requested resource does not exist.")


def pairs(items):
    return {item["key"]: item["value"] for item in items}


@on_a_loop
async def test_a_new_action_is_shown_as_it_is_stored():
    async with gateway() as g:
        body = {**PUT, "parameters": [{"key": "p", "value": None}, {"key": "i", "value": 1, "init": True}]}
        status, action = await g.say("PUT", f"{ACTIONS}/new", json={**body, "name": "x", "namespace": "y", "env": 1})
        assert status == 200
        assert isinstance(action.pop("updated"), int)
        assert action == {
            "namespace": "guest",
            "name": "new",
            "version": "0.0.1",
            "publish": False,
            "exec": {"kind": "python:3.11", "code": PUT["exec"]["code"], "binary": False},
            "annotations": [{"key": "provide-api-key", "value": False}, {"key": "exec", "value": "python:3.11"}],
            "parameters": [{"key": "p", "value": None}, {"key": "i", "value": 1, "init": True}],
            "limits": {"timeout": 60000, "memory": 256, "logs": 10, "concurrency": 1},
        }
        assert g.platform.deployed["guest", "new"].revision != ""


@on_a_loop
async def test_without_overwrite_an_existing_action_is_kept():
    async with gateway() as g:
        assert await g.say("PUT", f"{ACTIONS}/echo", json=PUT) == (409, "resource already exists")
        assert (await g.get(f"{ACTIONS}/echo")).json()["version"] == "0.0.1"


@on_a_loop
async def test_an_update_merges_annotations_and_limits_replaces_parameters_and_keeps_the_rest():
    first = {
        **PUT,
        "annotations": [{"key": "a", "value": 1}, {"key": "b", "value": 2}, {"key": "provide-api-key", "value": True}],
        "parameters": [{"key": "p", "value": 1}],
        "limits": {"timeout": 1000},
        "publish": True,
    }
    async with gateway(action=first) as g:
        old = g.platform.deployed["guest", "echo"]
        change = {
            "annotations": [{"key": "b", "value": 3}],
            "delAnnotations": ["a"],
            "parameters": [{"key": "q", "value": 2}],
            "limits": {"memory": 512},
        }
        status, action = await g.say("PUT", f"{ACTIONS}/echo?overwrite=true", json=change)
        assert status == 200
        assert action["version"] == "0.0.2"
        assert action["publish"] is True
        assert action["exec"]["code"] == PUT["exec"]["code"]
        assert pairs(action["annotations"]) == {"b": 3, "provide-api-key": True, "exec": "python:3.11"}
        assert pairs(action["parameters"]) == {"q": 2}
        assert action["limits"] == {"timeout": 1000, "memory": 512, "logs": 10, "concurrency": 1}
        assert g.platform.deployed["guest", "echo"].revision != old.revision


@on_a_loop
async def test_a_given_version_is_stored():
    async with gateway() as g:
        _, action = await g.say("PUT", f"{ACTIONS}/echo?overwrite=true", json={"version": "2.1"})
        assert action["version"] == "2.1.0"
        assert (await g.say("PUT", f"{ACTIONS}/echo?overwrite=true", json={}))[1]["version"] == "2.1.1"
        bad = await g.say("PUT", f"{ACTIONS}/echo?overwrite=true", json={"version": "latest"})
        assert bad == (400, "The request content was malformed:\nbad semantic version latest")


@pytest.mark.parametrize(
    ("code", "binary"),
    [("UEsDBA==", True), (" UEsDBA==\n", True), ("UEsDBA=", False), ("def f(): pass", False), ("", False)],
)
@on_a_loop
async def test_binary_is_computed_whatever_the_client_says(code, binary):
    async with gateway() as g:
        put = {"exec": {"kind": "python:3.11", "code": code, "binary": not binary}}
        _, action = await g.say("PUT", f"{ACTIONS}/new", json=put)
        assert action["exec"]["binary"] is binary


@on_a_loop
async def test_code_is_omitted_on_request_and_main_is_kept():
    async with gateway(action={"exec": {**PUT["exec"], "main": "go"}}) as g:
        assert (await g.get(f"{ACTIONS}/echo")).json()["exec"]["main"] == "go"
        without = (await g.get(f"{ACTIONS}/echo?code=false")).json()["exec"]
        assert without == {"kind": "python:3.11", "binary": False, "main": "go"}
        bad = await g.say("GET", f"{ACTIONS}/echo?code=maybe")
        assert bad == (400, "The query parameter 'code' was malformed:\n'maybe' is not a valid Boolean value")


@pytest.mark.parametrize("kind", ["python:3", "python:3.10", "python:default", "PYTHON:3.11", "python:3.11"])
@on_a_loop
async def test_aliases_resolve_to_the_kind_that_runs(kind):
    async with gateway() as g:
        _, action = await g.say("PUT", f"{ACTIONS}/new", json={"exec": {"kind": kind, "code": "x"}})
        assert action["exec"]["kind"] == "python:3.11"
        assert pairs(action["annotations"])["exec"] == "python:3.11"


@on_a_loop
async def test_node_is_a_kind_where_it_is_installed():
    put = {"exec": {"kind": "nodejs:default", "code": "function main(a) { return a }"}}
    async with gateway(nodejs=True) as g:
        assert (await g.say("PUT", f"{ACTIONS}/new", json=put))[1]["exec"]["kind"] == "nodejs:20"
        older = {"exec": {**put["exec"], "kind": "nodejs:18"}}
        assert (await g.say("PUT", f"{ACTIONS}/older", json=older))[1]["exec"]["kind"] == "nodejs:20"
    async with gateway() as g:
        text = (
            "The specified runtime 'nodejs:default' is not supported by this platform. Valid values are: 'python:3.11'."
        )
        assert await g.say("PUT", f"{ACTIONS}/new", json=put) == (400, text)


MALFORMED = "The request content was malformed:\n"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "exec undefined"),
        ({"exec": {"code": "x"}}, MALFORMED + "'kind' must be a string defined in 'exec'"),
        (
            {"exec": {"kind": " ", "code": "x"}},
            "The specified runtime '' is not supported by this platform. Valid values are: 'python:3.11'.",
        ),
        (
            {"exec": {"kind": "python:3"}},
            MALFORMED + "'code' must be a string or attachment object defined in 'exec' for 'python:3.11' actions",
        ),
        ({"exec": 1}, MALFORMED + "Expected `object | null`, got `int` - at `$.exec`"),
        ({**PUT, "limits": {"timeout": "1"}}, MALFORMED + "Expected `int | null`, got `str` - at `$.limits.timeout`"),
        ({**PUT, "limits": {"memory": 600}}, "memory size 600 MB exceeds allowed threshold of 512 MB"),
        ({**PUT, "limits": {"memory": 1}}, "memory size 1 MB below allowed threshold of 128 MB"),
        (
            {**PUT, "limits": {"timeout": 10}},
            "duration 10 milliseconds below allowed threshold of 100 milliseconds",
        ),
        (
            {**PUT, "limits": {"timeout": 400_000}},
            "duration 400000 milliseconds exceeds allowed threshold of 300000 milliseconds",
        ),
        ({**PUT, "limits": {"concurrency": 5}}, "concurrency 5 exceeds allowed threshold of 1"),
        ({**PUT, "limits": {"concurrency": 0}}, "concurrency 0 below allowed threshold of 1"),
        ({**PUT, "limits": {"instances": 0}}, "instances 0 below allowed threshold of 1"),
        ({**PUT, "limits": {"logs": 11}}, "log size 11 MB exceeds allowed threshold of 10 MB"),
        (
            {**PUT, "annotations": [{"value": 1}]},
            MALFORMED + "Object missing required field `key` - at `$.annotations[0]`",
        ),
        (
            {**PUT, "annotations": [{"key": "gpu-share", "value": 1.5}]},
            f"annotation gpu-share: it takes {ANNOTATIONS['gpu-share'].takes}, not 1.5",
        ),
        ([], MALFORMED + "Expected `object`, got `array`"),
    ],
)  # fmt: skip
@on_a_loop
async def test_an_invalid_action_is_refused(body, text):
    ranges = {"timeout_ms": (100, 300_000, 60_000), "memory_mb": (128, 512, 256)}
    async with gateway(**{key: Range(*value) for key, value in ranges.items()}) as g:
        assert await g.say("PUT", f"{ACTIONS}/new", json=body) == (400, text)
        assert await g.say("GET", f"{ACTIONS}/new") == GONE
        assert ("guest", "new") not in g.platform.deployed


@on_a_loop
async def test_an_action_that_fits_on_no_device_is_refused_with_the_reason():
    async with gateway() as g:
        g.platform.why_misfit = "needs 8589934592 bytes of 4294967296"
        assert await g.say("PUT", f"{ACTIONS}/new", json=PUT) == (400, "needs 8589934592 bytes of 4294967296")
        assert await g.say("GET", f"{ACTIONS}/new") == GONE


@on_a_loop
async def test_the_sizes_of_code_parameters_and_annotations_are_limited():
    async with gateway(code_bytes=100, parameters_bytes=50) as g:
        put = {"exec": {"kind": "python:3", "code": "é" * 51}}
        assert await g.say("PUT", f"{ACTIONS}/new", json=put) == (413, "exec larger than allowed: 102 > 100 bytes.")
        many = [{"key": "k", "value": "x" * 50}]
        for field in ("parameters", "annotations"):
            text = f"{field} larger than allowed: "
            status, said = await g.say("PUT", f"{ACTIONS}/new", json={**PUT, field: many})
            assert (status, said[: len(text)]) == (413, text)


@pytest.mark.parametrize(
    "name",
    ["a", "a b", "a@b.c&d-e", "_x", "0", "a" * 256, "A_9"],
)
@on_a_loop
async def test_valid_names_are_accepted(name):
    async with gateway() as g:
        path = f"{ACTIONS}/{name.replace(' ', '%20').replace('&', '%26')}"
        assert (await g.say("PUT", path, json=PUT))[1]["name"] == name
        assert (await g.say("GET", path))[0] == 200
        assert (await g.say("POST", path + "?blocking=true"))[0] == 200
        assert (await g.say("DELETE", path))[0] == 200


@pytest.mark.parametrize(
    "name",
    ["%2e%2e", "a%20", "-a", "a%00b", "%00", "a%2fb", "a%3Cb", "%C3%A9", "%ff", "a%0a", "@a", "%20", "%5c", "a%25"],
)
@on_a_loop
async def test_invalid_names_are_refused(name):
    async with gateway() as g:
        for method in ("PUT", "GET", "DELETE", "POST"):
            assert await g.say(method, f"{ACTIONS}/{name}", json=PUT) == (400, NAME_TEXT)


@on_a_loop
async def test_the_refusal_of_a_long_name_says_how_long_it_is():
    async with gateway() as g:
        for method in ("PUT", "POST"):
            text = "Name segement longer than allowed: 257 > 256."
            assert await g.say(method, f"{ACTIONS}/{'a' * 257}", json=PUT) == (400, text)


@on_a_loop
async def test_an_action_in_a_missing_package_is_a_404():
    async with gateway() as g:
        for method in ("PUT", "GET", "DELETE", "POST"):
            assert await g.say(method, f"{ACTIONS}/pkg/x", json=PUT) == GONE


@on_a_loop
async def test_deleting_returns_the_deleted_action():
    async with gateway() as g:
        there = (await g.get(f"{ACTIONS}/echo")).json()
        assert await g.say("DELETE", f"{ACTIONS}/echo") == (200, there)
        assert await g.say("DELETE", f"{ACTIONS}/echo") == GONE
        assert await g.say("POST", f"{ACTIONS}/echo") == GONE
        assert g.platform.deployed == {}


@on_a_loop
async def test_a_list_is_paged_newest_first():
    async with gateway() as g:
        for name in ("b", "c"):
            await g.put(f"{ACTIONS}/{name}", json=PUT)
        listed = (await g.get(ACTIONS)).json()
        assert [item["updated"] for item in listed] == sorted((item["updated"] for item in listed), reverse=True)
        assert {item["name"] for item in listed} == {"echo", "b", "c"}
        assert set(listed[0]) == {
            "namespace", "name", "version", "publish", "annotations", "limits", "exec", "updated",
        }  # fmt: skip
        assert listed[0]["exec"] == {"binary": False}
        assert (await g.get(f"{ACTIONS}?limit=1&skip=1")).json() == [listed[1]]
        assert (await g.get(f"{ACTIONS}/?limit=0")).json() == listed
        assert (await g.get(f"{ACTIONS}?count=true")).json() == {"actions": 3}


WRONG = "The query parameter '{}' was malformed:\n{}"


@pytest.mark.parametrize(
    ("query", "name", "why"),
    [
        ("limit=201", "limit", "The value '201' is not in the range of 0 to 200 for {}."),
        ("limit=-1", "limit", "The value '-1' is not in the range of 0 to 200 for {}."),
        ("limit=x", "limit", "The value 'x' is not an integer for {}."),
        ("limit=1_0", "limit", "The value '1_0' is not an integer for {}."),
        ("skip=-1", "skip", "The value '-1' is not greater than or equal to 0 for {}."),
        ("skip=", "skip", "The value '' is not an integer for {}."),
        ("skip=2147483648", "skip", "The value '2147483648' is not an integer for {}."),
        ("count=2", "count", "'2' is not a valid Boolean value"),
    ],
)
@on_a_loop
async def test_an_invalid_page_is_refused(query, name, why):
    async with gateway() as g:
        for collection in ("actions", "activations"):
            text = WRONG.format(name, why.format(collection))
            assert await g.say("GET", f"{NS}/{collection}?{query}") == (400, text)


@on_a_loop
async def test_a_store_that_cannot_write_leaves_everything_as_it_was():
    async with gateway() as g:
        g.store.fail("the disk is full")
        assert await g.say("PUT", f"{ACTIONS}/new", json=PUT) == (503, "the disk is full")
        assert await g.say("GET", f"{ACTIONS}/new") == GONE
        assert await g.say("DELETE", f"{ACTIONS}/echo") == (503, "the disk is full")
        assert (await g.say("GET", f"{ACTIONS}/echo"))[0] == 200
        assert await g.say("GET", "/health") == (503, {"status": "failing", "complaint": "the disk is full"})


@on_a_loop
async def test_binary_code_is_returned_unchanged():
    code = base64.b64encode(bytes(range(256)) * 3).decode()
    async with gateway(action={"exec": {"kind": "python:3", "code": code}}) as g:
        assert (await g.get(f"{ACTIONS}/echo")).json()["exec"] == {
            "kind": "python:3.11",
            "code": code,
            "binary": True,
        }


@on_a_loop
async def test_instances_cannot_exceed_the_namespaces_concurrency():
    async with gateway(concurrent_invocations=3) as g:
        _, action = await g.say("PUT", f"{ACTIONS}/new", json={**PUT, "limits": {"instances": 3}})
        assert action["limits"]["instances"] == 3
        _, action = await g.say("PUT", f"{ACTIONS}/new?overwrite=true", json={"limits": {"memory": 128}})
        assert (action["limits"]["instances"], action["limits"]["memory"]) == (3, 128)
        assert "instances" not in (await g.say("GET", f"{ACTIONS}/echo"))[1]["limits"]
        text = "Max action instance concurrency must not exceed your namespace concurrency of 3."
        assert await g.say("PUT", f"{ACTIONS}/new?overwrite=true", json={"limits": {"instances": 4}}) == (400, text)
