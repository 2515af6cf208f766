"""Rules over HTTP, with exact responses."""

import pytest
from gateway_client import ACTIONS, ELSEWHERE, EXISTS, GONE, PACKAGES, PUT, RULES, TRIGGERS, gateway, on_a_loop

MALFORMED = "The request content was malformed:\n"
ENDS = {"trigger": "/_/t", "action": "/_/echo"}


async def with_trigger(g, name="t"):
    assert (await g.put(f"{TRIGGERS}/{name}", json={})).status_code == 200


@pytest.mark.parametrize(
    "ends",
    [ENDS, {"trigger": "guest/t", "action": "/guest/echo"},
     {"trigger": {"path": "_", "name": "t"}, "action": {"path": "guest", "name": "echo"}}],
)  # fmt: skip
@on_a_loop
async def test_a_rule_is_created_read_and_deleted(ends):
    async with gateway() as g:
        await with_trigger(g)
        status, rule = await g.say("PUT", f"{RULES}/r", json={"name": "x", "status": "", **ends})
        assert (status, rule.pop("updated") > 0) == (200, True)
        assert rule == {
            "namespace": "guest",
            "name": "r",
            "version": "0.0.1",
            "publish": False,
            "annotations": [],
            "trigger": {"path": "guest", "name": "t"},
            "action": {"path": "guest", "name": "echo"},
            "status": "active",
        }
        assert await g.say("PUT", f"{RULES}/r", json=ends) == EXISTS
        assert (await g.say("GET", f"{RULES}/r"))[1].items() >= rule.items()
        _, gone = await g.say("DELETE", f"{RULES}/r")
        assert gone["status"] == "inactive"
        for verb in ("GET", "DELETE"):
            assert await g.say(verb, f"{RULES}/r") == GONE
        assert await g.say("POST", f"{RULES}/r", json={"status": "active"}) == GONE


@on_a_loop
async def test_a_trigger_and_a_namespace_have_a_bounded_number_of_rules():
    async with gateway(rules_per_trigger=2, rules_per_namespace=3) as g:
        await with_trigger(g)
        await with_trigger(g, "u")
        for name in ("a", "b"):
            assert (await g.say("PUT", f"{RULES}/{name}", json=ENDS))[0] == 200
        refused = (429, "Too many rules of trigger /guest/t (count: 2, allowed: 2).")
        assert await g.say("PUT", f"{RULES}/c", json=ENDS) == refused
        assert (await g.say("PUT", f"{RULES}/c", json=ENDS | {"trigger": "/_/u"}))[0] == 200
        assert (
            await g.say("PUT", f"{RULES}/c?overwrite=true", json=ENDS) == refused
        )  # it would move to the full trigger
        assert (await g.say("PUT", f"{RULES}/a?overwrite=true", json=ENDS))[0] == 200
        refused = (429, "Too many rules in the namespace (count: 3, allowed: 3).")
        assert await g.say("PUT", f"{RULES}/d", json=ENDS | {"trigger": "/_/u"}) == refused
        await g.delete(f"{RULES}/a")
        assert (await g.say("PUT", f"{RULES}/d", json=ENDS))[0] == 200


@on_a_loop
async def test_an_update_keeps_the_status_and_absent_fields():
    async with gateway() as g:
        await with_trigger(g)
        await with_trigger(g, "u")
        await g.put(f"{RULES}/r?overwrite=true", json=ENDS)
        _, rule = await g.say("PUT", f"{RULES}/r?overwrite=true", json={"trigger": "/_/u"})
        assert (rule["version"], rule["status"]) == ("0.0.2", "active")
        assert (rule["trigger"]["name"], rule["action"]["name"]) == ("u", "echo")
        assert (await g.say("GET", f"{TRIGGERS}/t"))[1]["rules"] == {}
        await g.post(f"{RULES}/r", json={"status": "inactive"})
        _, rule = await g.say("PUT", f"{RULES}/r?overwrite=true", json={"trigger": "/_/t"})
        assert rule["status"] == "inactive"
        assert list((await g.say("GET", f"{TRIGGERS}/t"))[1]["rules"]) == ["guest/r"]


@on_a_loop
async def test_a_rule_is_switched_off_and_on():
    async with gateway() as g:
        await with_trigger(g)
        await g.put(f"{RULES}/r", json=ENDS)
        for status in ("inactive", "inactive", "active", "active"):
            assert (await g.say("POST", f"{RULES}/r", json={"status": status}))[0] == 200
            _, rule = await g.say("GET", f"{RULES}/r")
            assert (rule["status"], rule["version"]) == (status, "0.0.1")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"status":"off"}', b'{"status":1}', b"[]"])
@on_a_loop
async def test_a_rules_status_is_active_or_inactive(body):
    async with gateway() as g:
        await with_trigger(g)
        await g.put(f"{RULES}/r", json=ENDS)
        status, text = await g.say("POST", f"{RULES}/r", content=body)
        assert status == 400
        assert text.startswith(MALFORMED)


@on_a_loop
async def test_without_its_trigger_a_rule_reads_inactive_and_cannot_be_switched_on():
    async with gateway() as g:
        await with_trigger(g)
        await g.put(f"{RULES}/r", json=ENDS)
        await g.delete(f"{TRIGGERS}/t")
        assert (await g.say("GET", f"{RULES}/r"))[1]["status"] == "inactive"
        assert (await g.say("POST", f"{RULES}/r", json={"status": "inactive"}))[0] == 200
        refused = (404, "Only rules with existing triggers can be activated")
        assert await g.say("POST", f"{RULES}/r", json={"status": "active"}) == refused
        await with_trigger(g)
        assert (await g.say("GET", f"{RULES}/r"))[1]["status"] == "inactive"
        assert (await g.say("POST", f"{RULES}/r", json={"status": "active"}))[1]["status"] == "active"
        assert (await g.say("GET", f"{TRIGGERS}/t"))[1]["rules"]["guest/r"]["status"] == "active"


@on_a_loop
async def test_an_updated_rule_without_its_trigger_stays_inactive():
    async with gateway() as g:
        await with_trigger(g)
        await with_trigger(g, "u")
        await g.put(f"{RULES}/r", json=ENDS)
        await g.delete(f"{TRIGGERS}/t")
        assert (await g.say("PUT", f"{RULES}/r?overwrite=true", json={"trigger": "/_/u"}))[1]["status"] == "inactive"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"trigger": "/_/none"}, "trigger /guest/none does not exist"),
        ({"trigger": "/_/echo"}, "trigger /guest/echo does not exist"),
        ({"action": "/_/none"}, "action /guest/none does not exist"),
        ({"action": "/_/t"}, "action /guest/t does not exist"),
        ({"action": "/guest/p/echo"}, "action /guest/p/echo does not exist"),
        ({"trigger": None}, "rule requires a valid trigger and a valid action"),
        ({"action": None}, "rule requires a valid trigger and a valid action"),
        (
            {"trigger": "t"},
            MALFORMED
            + "requirement failed: "
            + "The fully qualified name of the entity must contain at least the namespace and the name of the entity.",
        ),
        ({"trigger": "/_/ t"}, MALFORMED + "requirement failed: path contains invalid parts _,  t"),
    ],
)
@on_a_loop
async def test_a_rule_has_a_trigger_and_an_action(change, text):
    async with gateway() as g:
        await with_trigger(g)
        assert await g.say("PUT", f"{RULES}/r", json={**ENDS, **change}) == (400, text)


@on_a_loop
async def test_a_rules_action_may_be_in_a_package_or_come_through_a_binding():
    async with gateway() as g:
        lib = await g.beside("lib")
        for name, publish in (("utils", True), ("secret", False)):
            await lib.put(f"{PACKAGES}/{name}", json={"publish": publish})
            await lib.put(f"{ACTIONS}/{name}/echo", json=PUT)
        await lib.put(f"{TRIGGERS}/t", json={"publish": True})
        await g.put(f"{PACKAGES}/mine", json={"binding": {"namespace": "lib", "name": "utils"}})
        await with_trigger(g)
        for number, (action, path) in enumerate((("/_/mine/echo", "guest/mine"), ("lib/utils/echo", "lib/utils"))):
            _, rule = await g.say("PUT", f"{RULES}/r{number}", json={**ENDS, "action": action})
            assert rule["action"] == {"path": path, "name": "echo"}
        for change, name in (({"action": "/lib/secret/echo"}, "lib/secret"), ({"trigger": "/lib/t"}, "lib/t")):
            text = f"The supplied authentication is not authorized to access '{name}'."
            assert await g.say("PUT", f"{RULES}/r", json={**ENDS, **change}) == (403, text)


@on_a_loop
async def test_rules_are_listed_without_their_status_and_counted():
    async with gateway() as g:
        await with_trigger(g)
        for name in ("one", "two"):
            await g.put(f"{RULES}/{name}", json=ENDS)
        _, listed = await g.say("GET", RULES)
        assert [item["name"] for item in listed] == ["two", "one"]
        assert set(listed[0]) == {
            "namespace", "name", "version", "publish", "annotations", "updated", "trigger", "action"
        }  # fmt: skip
        assert await g.say("GET", f"{RULES}?count=true&skip=1") == (200, {"rules": 1})


@on_a_loop
async def test_names_are_shared_with_triggers():
    async with gateway() as g:
        await with_trigger(g)
        assert await g.say("PUT", f"{RULES}/t?overwrite=true", json=ENDS) == ELSEWHERE
        assert await g.say("GET", f"{RULES}/t") == ELSEWHERE


@on_a_loop
async def test_rules_and_triggers_survive_a_restart():
    async with gateway() as g:
        await with_trigger(g)
        await g.put(f"{RULES}/r", json=ENDS)
        await g.put(f"{PACKAGES}/p", json={})
        again = type(g.catalogue)(g.store, g.platform)
        await again.load()
        assert again.entities.everything("guest") != []
        assert {e.name: e for e in again.entities.everything("guest")} == {
            e.name: e for e in g.catalogue.entities.everything("guest")
        }
        rule = again.entities.any("guest", "r")
        assert again.entities.is_active(rule)
