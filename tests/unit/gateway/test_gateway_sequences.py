"""Sequences as entities: their components, and changes from and to plain actions."""

import pytest
from gateway_client import ACTIONS, PACKAGES, PUT, gateway, on_a_loop

CYCLIC = (400, "Sequence may not refer to itself.")
MISSING = (400, "Sequence component does not exist.")
TOO_MANY = (400, "Too many actions in the sequence.")


def sequence(*components):
    return {"exec": {"kind": "sequence", "components": list(components)}}


def pairs(items):
    return {item["key"]: item["value"] for item in items}


async def put(g, name, *components):
    return await g.say("PUT", f"{ACTIONS}/{name}?overwrite=true", json=sequence(*components))


@on_a_loop
async def test_a_sequence_shows_its_components_and_has_no_other_parameters():
    async with gateway() as g:
        body = {**sequence("/_/echo", "guest/echo"), "parameters": [{"key": "p", "value": 1}]}
        status, action = await g.say("PUT", f"{ACTIONS}/s", json=body)
        assert status == 200
        assert action["exec"] == {"kind": "sequence", "components": ["/guest/echo", "/guest/echo"]}
        assert action["parameters"] == [{"key": "_actions", "value": ["/guest/echo", "/guest/echo"]}]
        assert pairs(action["annotations"])["exec"] == "sequence"
        assert action["limits"]["timeout"] == 60000
        assert (await g.say("GET", f"{ACTIONS}/s?code=false"))[1] == action
        items = {item["name"]: item for item in (await g.say("GET", ACTIONS))[1]}
        assert items["s"]["exec"] == {"binary": False}
        assert ("guest", "s") not in g.platform.deployed


@pytest.mark.parametrize(
    ("components", "text"),
    [
        ([], "No component specified for the sequence."),
        (["/_/none"], "Sequence component does not exist."),
        (["/_/nowhere/echo"], "Sequence component does not exist."),
        (["/_/p"], "Sequence component does not exist."),
        (["/_/s"], "Sequence may not refer to itself."),
        (["/_/echo"] * 51, "Too many actions in the sequence."),
        (["/_/none"] * 51, "Too many actions in the sequence."),
        (None, "The request content was malformed:\n'components' must be defined for sequence kind"),
        ([""], "The request content was malformed:\nrequirement failed: path undefined"),
        (
            ["echo"],
            (
                "The request content was malformed:\nrequirement failed: "
                "The fully qualified name of the entity must contain at least the namespace and the name of the entity."
            ),
        ),
    ],
)
@on_a_loop
async def test_invalid_components_are_refused(components, text):
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        body = {"exec": {"kind": "sequence", "components": components}}
        assert await g.say("PUT", f"{ACTIONS}/s", json=body) == (400, text)


@on_a_loop
async def test_nested_sequences_count_with_the_actions_that_would_run():
    async with gateway() as g:
        assert (await put(g, "ten", *["/_/echo"] * 10))[0] == 200
        assert (await put(g, "fifty", *["/_/ten"] * 5))[0] == 200
        assert await put(g, "more", "/_/fifty", "/_/echo") == TOO_MANY
        assert await put(g, "many", *["/_/fifty"] * 50) == TOO_MANY


@on_a_loop
async def test_a_sequence_cannot_contain_itself_however_deep():
    async with gateway() as g:
        await put(g, "a", "/_/echo")
        await put(g, "b", "/_/a")
        await put(g, "c", "/_/b", "/_/a")
        assert await put(g, "a", "/_/echo", "/_/c") == CYCLIC
        assert await put(g, "echo", "/_/c") == CYCLIC
        assert (await put(g, "d", "/_/a", "/_/a", "/_/c"))[0] == 200


@on_a_loop
async def test_a_sequence_cannot_contain_itself_through_a_binding():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        await g.put(f"{PACKAGES}/b", json={"binding": {"namespace": "_", "name": "p"}})
        await g.put(f"{ACTIONS}/p/s", json=PUT)
        assert await put(g, "p/s", "/_/b/s") == CYCLIC
        assert (await put(g, "s", "/_/b/s"))[1]["exec"]["components"] == ["/guest/b/s"]


@on_a_loop
async def test_a_long_chain_of_sequences_is_accepted():
    async with gateway() as g:
        await put(g, "s0", "/_/echo")
        for number in range(1, 1500):
            entity = g.catalogue.entities.any("guest", "s0")
            name = f"s{number}"
            code = type(entity.exec)("sequence", components=(type(entity.full_name)("guest", f"s{number - 1}"),))
            g.catalogue.entities.add(type(entity)("guest", name, "0.0.1", code))
        assert (await put(g, "last", "/_/s1499"))[0] == 200
        assert await put(g, "s0", "/_/s1499") == CYCLIC


@on_a_loop
async def test_components_of_other_namespaces_must_be_published():
    async with gateway() as g:
        lib = await g.beside("lib")
        await lib.put(f"{ACTIONS}/hidden", json=PUT)
        for name, publish in (("utils", True), ("secret", False)):
            await lib.put(f"{PACKAGES}/{name}", json={"publish": publish})
            await lib.put(f"{ACTIONS}/{name}/echo", json=PUT)
            await lib.put(f"{ACTIONS}/{name}/private", json=sequence("/_/hidden"))
        await g.put(f"{PACKAGES}/mine", json={"binding": {"namespace": "lib", "name": "utils"}})
        assert (await put(g, "s", "/lib/utils/echo", "/_/mine/echo", "/lib/utils/private"))[0] == 200
        for name in ("lib/hidden", "lib/secret/echo", "lib/none/echo"):
            shown = name.removesuffix("/echo")  # the package, if it is in one
            text = f"The supplied authentication is not authorized to access '{shown}'."
            assert await put(g, "s", "/_/echo", name) == (403, text)
        assert await put(g, "s", "/lib/utils/none") == MISSING


@on_a_loop
async def test_an_action_can_become_a_sequence_and_back():
    async with gateway(action={**PUT, "parameters": [{"key": "p", "value": 1}]}) as g:
        await g.put(f"{ACTIONS}/other", json=PUT)
        _, action = await put(g, "echo", "/_/other")
        assert pairs(action["parameters"]) == {"_actions": ["/guest/other"]}
        assert ("guest", "echo") not in g.platform.deployed
        some = {"parameters": [{"key": "q", "value": 1}], "annotations": [{"key": "a", "value": 1}]}
        _, action = await g.say("PUT", f"{ACTIONS}/echo?overwrite=true", json=some)
        assert pairs(action["parameters"]) == {"_actions": ["/guest/other"]}
        assert action["exec"]["kind"] == pairs(action["annotations"])["exec"] == "sequence"
        _, action = await g.say("PUT", f"{ACTIONS}/echo?overwrite=true", json=PUT)
        assert action["parameters"] == []
        assert pairs(action["annotations"]) == {"a": 1, "provide-api-key": False, "exec": "python:3.11"}
        assert ("guest", "echo") in g.platform.deployed


@on_a_loop
async def test_a_sequence_can_be_in_a_package():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        _, action = await put(g, "p/s", "/_/echo")
        assert action["namespace"] == "guest/p"
        assert (await g.say("DELETE", f"{ACTIONS}/p/s"))[1]["exec"]["components"] == ["/guest/echo"]
