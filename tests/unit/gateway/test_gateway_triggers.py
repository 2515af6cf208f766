"""Triggers over HTTP, with exact responses."""

import pytest
from gateway_client import ACTIONS, ELSEWHERE, EXISTS, GONE, RULES, TRIGGERS, gateway, on_a_loop


@on_a_loop
async def test_a_trigger_is_created_updated_read_and_deleted():
    async with gateway() as g:
        some = [{"key": "p", "value": 1}]
        status, trigger = await g.say("PUT", f"{TRIGGERS}/t", json={"parameters": some, "limits": {"any": 1}})
        assert (status, trigger.pop("updated") > 0) == (200, True)
        assert trigger == {
            "namespace": "guest",
            "name": "t",
            "version": "0.0.1",
            "publish": False,
            "annotations": [],
            "parameters": some,
            "limits": {},
            "rules": {},
        }
        assert await g.say("PUT", f"{TRIGGERS}/t", json={}) == EXISTS
        _, changed = await g.say("PUT", f"{TRIGGERS}/t?overwrite=true", json={"annotations": some, "version": "1.2"})
        changed.pop("updated")
        assert changed == {**trigger, "version": "1.2.0", "annotations": some}
        assert (await g.say("GET", f"{TRIGGERS}/t"))[1].items() >= changed.items()
        assert (await g.say("DELETE", f"{TRIGGERS}/t"))[1].items() >= changed.items()
        assert await g.say("GET", f"{TRIGGERS}/t") == await g.say("DELETE", f"{TRIGGERS}/t") == GONE


@on_a_loop
async def test_an_empty_body_makes_a_trigger():
    async with gateway() as g:
        assert (await g.say("PUT", f"{TRIGGERS}/t"))[0] == 200


@on_a_loop
async def test_a_trigger_shows_its_rules_also_after_an_update():
    async with gateway() as g:
        await g.put(f"{TRIGGERS}/t", json={})
        await g.put(f"{RULES}/r", json={"trigger": "/_/t", "action": "/_/echo"})
        _, trigger = await g.say("PUT", f"{TRIGGERS}/t?overwrite=true", json={})
        assert trigger["rules"] == {"guest/r": {"action": {"path": "guest", "name": "echo"}, "status": "active"}}
        await g.post(f"{RULES}/r", json={"status": "inactive"})
        assert (await g.say("GET", f"{TRIGGERS}/t"))[1]["rules"]["guest/r"]["status"] == "inactive"
        await g.delete(f"{RULES}/r")
        assert (await g.say("GET", f"{TRIGGERS}/t"))[1]["rules"] == {}


@on_a_loop
async def test_a_new_trigger_does_not_inherit_the_rules_of_a_deleted_one():
    async with gateway() as g:
        await g.put(f"{TRIGGERS}/t", json={})
        await g.put(f"{RULES}/r", json={"trigger": "/_/t", "action": "/_/echo"})
        await g.delete(f"{TRIGGERS}/t")
        await g.put(f"{TRIGGERS}/t", json={})
        assert (await g.say("GET", f"{TRIGGERS}/t"))[1]["rules"] == {}
        assert (await g.say("GET", f"{RULES}/r"))[1]["status"] == "inactive"


@pytest.mark.parametrize(
    ("feed", "valid"),
    [("a", True), ("/ns/pkg/feed", True), ("ns/feed", True), ("", False), ("/", False), ("/ns/ ", False), (1, False),
     (None, False), ("a" * 257, False)],
)  # fmt: skip
@on_a_loop
async def test_a_feed_must_be_a_path(feed, valid):
    async with gateway() as g:
        status, body = await g.say("PUT", f"{TRIGGERS}/t", json={"annotations": [{"key": "feed", "value": feed}]})
        assert status == 200 if valid else (status, body) == (400, "Feed name is not valid")


@on_a_loop
async def test_triggers_are_listed_newest_first_and_counted():
    async with gateway() as g:
        for name in ("one", "two", "three"):
            await g.put(f"{TRIGGERS}/{name}", json={"parameters": [{"key": "p", "value": 1}]})
        _, listed = await g.say("GET", f"{TRIGGERS}?limit=2")
        assert [item["name"] for item in listed] == ["three", "two"]
        assert set(listed[0]) == {"namespace", "name", "version", "publish", "annotations", "updated"}
        assert await g.say("GET", f"{TRIGGERS}?count=true") == (200, {"triggers": 3})


@on_a_loop
async def test_names_are_shared_with_actions_and_rules():
    async with gateway() as g:
        await g.put(f"{TRIGGERS}/t", json={})
        for verb, path in (("PUT", f"{TRIGGERS}/echo"), ("GET", f"{TRIGGERS}/echo"), ("DELETE", f"{TRIGGERS}/echo"),
                           ("GET", f"{ACTIONS}/t"), ("POST", f"{ACTIONS}/t"), ("DELETE", f"{RULES}/t")):  # fmt: skip
            assert await g.say(verb, path) == ELSEWHERE


@on_a_loop
async def test_triggers_of_another_namespace_are_forbidden():
    async with gateway() as g:
        other = await g.beside("other")
        await other.put(f"{TRIGGERS}/t", json={"publish": True})
        theirs = "/api/v1/namespaces/other/triggers"
        refused = (403, "The supplied authentication is not authorized to access 'other/t'.")
        for verb in ("PUT", "GET", "DELETE"):
            assert await g.say(verb, f"{theirs}/t") == refused
        assert (await g.say("GET", theirs))[0] == 403
