"""Sessions through the gateway: creation, use, changes, permissions and expiry."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from gateway_client import ACTIONS, AS_OPERATOR, NS, basic, gateway, on_a_loop
from msgspec.structs import replace

from aliquot.live.invocations.sessions.records import SESSIONS, USES, SessionSettings
from aliquot.live.invocations.sessions.registry import SessionRegistry
from aliquot.testing.platform import FakePlatform
from aliquot.testing.waiting import wait_on_loop, wait_until_async

ALL = "/api/v1/sessions"
ECHO = f"{ACTIONS}/echo"
RESULT = f"{ECHO}?blocking=true&result=true"
HEADER = "X-Aliquot-Session"
MALFORMED = "The request content was malformed:\n"


def gone(session_id):
    return 404, f"There is no session '{session_id}', or it has ended."


async def begin(g, **body):
    status, session = await g.say("POST", ALL, json=body)
    assert status == 201, session
    return session


async def until_ended(g, session_id):
    await wait_until_async(
        lambda: g.get(f"{ALL}/{session_id}"), lambda answer: answer.status_code == 404, what="the session's end"
    )


def next_book(g, **settings):
    """Return the sessions as the next server loads them from the same store."""
    return SessionRegistry(g.store, FakePlatform(g.store), SessionSettings(**settings))


def annotations(record):
    return {pair["key"]: pair["value"] for pair in record["annotations"]}


@on_a_loop
async def test_a_session_is_created_read_changed_and_ended():
    async with gateway() as g:
        before_ms = time.time_ns() // 1_000_000
        made = await begin(g, name="analysis", user="ann", metadata={"deep": [1, {"é": None}]})
        session_id = made["sessionId"]
        assert len(session_id) == 32
        assert set(session_id) <= set("0123456789abcdef")
        assert (made["namespace"], made["name"], made["invocations"]) == ("guest", "analysis", 0)
        assert (made["user"], made["metadata"]) == ("ann", {"deep": [1, {"é": None}]})
        assert before_ms <= made["created"] == made["used"]
        assert made["expires"] == made["used"] + 30 * 60 * 1000
        assert await g.say("GET", f"{ALL}/{session_id}") == (200, made)
        renamed = {**made, "name": "b"}
        assert await g.say("PATCH", f"{ALL}/{session_id}", json={"name": "b"}) == (200, renamed)
        emptied = {**renamed, "metadata": {}}
        assert await g.say("PATCH", f"{ALL}/{session_id}", json={"metadata": {}}) == (200, emptied)
        refused = (400, f"{MALFORMED}Object contains unknown field `user`")
        assert await g.say("PATCH", f"{ALL}/{session_id}", json={"user": "bob"}) == refused
        assert await g.say("DELETE", f"{ALL}/{session_id}") == (200, emptied)
        assert g.platform.ended_sessions == [("guest", session_id)]
        for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
            assert await g.say(method, f"{ALL}/{session_id}", json=body) == gone(session_id)


@on_a_loop
async def test_a_session_needs_no_body():
    async with gateway() as g:
        status, made = await g.say("POST", ALL)
        assert (status, made["name"], made["user"], made["metadata"]) == (201, "", "", {})


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ("x" * 257, "user: it takes at most 256 characters, not 257"),
        (1, f"{MALFORMED}Expected `str`, got `int` - at `$.user`"),
    ],
)
@on_a_loop
async def test_the_refusal_of_a_wrong_user_names_the_field(user, text):
    async with gateway() as g:
        assert await g.say("POST", ALL, json={"user": user}) == (400, text)
        assert await g.say("GET", ALL) == (200, [])
        assert (await begin(g, user="x" * 256))["user"] == "x" * 256


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"metadata": 1}, 400, f"{MALFORMED}Expected `object`, got `int` - at `$.metadata`"),
        ({"name": None}, 400, f"{MALFORMED}Expected `str`, got `null` - at `$.name`"),
        ({"colour": 1}, 400, f"{MALFORMED}Object contains unknown field `colour`"),
        ({"name": "x" * 257}, 400, "name: it takes at most 256 characters, not 257"),
        ({"metadata": {"a": "x" * 65536}}, 413, "Session metadata larger than allowed: 65544 > 65536 bytes."),
        ({"metadata": {"a": "x" * 300_000}}, 413, "Request larger than allowed: 300021 > 266240 bytes."),
    ],
)
@on_a_loop
async def test_a_wrong_body_is_refused(body, status, text):
    async with gateway() as g:
        assert await g.say("POST", ALL, json=body) == (status, text)
        made = await begin(g, name="kept")
        assert await g.say("PATCH", f"{ALL}/{made['sessionId']}", json=body) == (status, text)
        assert await g.say("GET", ALL) == (200, [{key: value for key, value in made.items() if key != "metadata"}])


@on_a_loop
async def test_lists_are_paged_newest_first():
    async with gateway() as g:
        names = [(await begin(g, name=f"s{number}"))["name"] for number in range(5)]
        listed = [one["name"] for one in (await g.get(ALL)).json()]
        assert listed == names[::-1]
        page = [one["name"] for one in (await g.get(f"{ALL}?skip=1&limit=2")).json()]
        assert page == ["s3", "s2"]
        assert await g.say("GET", f"{ALL}?count=true") == (200, {"sessions": 5})
        assert (await g.get(f"{ALL}?limit=201")).status_code == 400


@on_a_loop
async def test_the_number_of_sessions_is_limited():
    async with gateway(sessions=SessionSettings(max_live=2)) as g:
        answers = await asyncio.gather(*(g.say("POST", ALL) for _ in range(4)))
        assert sorted(status for status, _ in answers) == [201, 201, 429, 429]
        status, text = await g.say("POST", ALL)
        assert status == 429
        assert text.startswith("Too many sessions (count: 2, allowed: 2)")
        first = (await g.get(ALL)).json()[0]["sessionId"]
        await g.delete(f"{ALL}/{first}")
        await begin(g)


@on_a_loop
async def test_an_invocation_names_its_session_by_query_or_header():
    async with gateway() as g:
        session_id = (await begin(g))["sessionId"]
        by_query = (await g.post(f"{ECHO}?blocking=true&session={session_id}")).json()
        by_header = (await g.post(f"{ECHO}?blocking=true", headers={HEADER: session_id})).json()
        both = await g.post(f"{ECHO}?blocking=true&session={session_id}", headers={HEADER: session_id})
        without = (await g.post(f"{ECHO}?blocking=true")).json()
        accepted = (await g.post(ECHO, headers={HEADER: session_id})).json()
        assert both.status_code == 200
        assert [call.session for call in g.platform.calls] == [session_id] * 3 + ["", session_id]
        assert annotations(by_query)["session"] == annotations(by_header)["session"] == session_id
        assert "session" not in annotations(without)
        listed = (await g.get(f"{NS}/activations?session={session_id}")).json()
        ours = [accepted, both.json(), by_header, by_query]
        assert [one["activationId"] for one in listed] == [one["activationId"] for one in ours]
        assert await g.say("GET", f"{NS}/activations?session={session_id}&count=true") == (200, {"activations": 4})
        assert await g.say("GET", f"{NS}/activations?session=x") == (200, [])
        assert (await g.get(f"{ALL}/{session_id}")).json()["invocations"] == 4


@on_a_loop
async def test_an_invocation_with_an_unknown_session_does_not_run():
    async with gateway() as g:
        session_id = (await begin(g))["sessionId"]
        other = (await begin(g))["sessionId"]
        await g.delete(f"{ALL}/{other}")
        assert await g.say("POST", f"{RESULT}&session={other}") == gone(other)
        assert await g.say("POST", RESULT, headers={HEADER: "nonsense"}) == gone("nonsense")
        assert await g.say("POST", RESULT, headers={HEADER: "x" * 5000}) == gone("x" * 64)
        assert await g.say("POST", ECHO, headers={HEADER: other}) == gone(other)
        status, text = await g.say("POST", f"{RESULT}&session={session_id}", headers={HEADER: other})
        assert (status, text) == (400, f"The query names session '{session_id}', the header '{other}'; name one.")
        assert g.platform.calls == []


@on_a_loop
async def test_another_namespace_cannot_reach_a_session():
    async with gateway() as g:
        session_id = (await begin(g, metadata={"secret": 1}))["sessionId"]
        stranger = basic(await g.catalogue.create_namespace("stranger"))
        assert await g.say("GET", ALL, auth=stranger) == (200, [])
        for method, body in (("GET", None), ("PATCH", {"name": "mine"}), ("DELETE", None)):
            assert await g.say(method, f"{ALL}/{session_id}", json=body, auth=stranger) == gone(session_id)
        await g.put(f"{ACTIONS}/echo", json={"exec": {"kind": "python:3.11", "code": "x"}}, auth=stranger)
        assert await g.say("POST", f"{RESULT}&session={session_id}", auth=stranger) == gone(session_id)
        assert await g.say("GET", f"{NS}/activations?session={session_id}", auth=stranger) == (200, [])
        assert (await g.get(ALL, auth=None)).status_code == 401
        assert (await g.get(f"{ALL}/{session_id}")).json()["name"] == ""


@on_a_loop
async def test_a_session_ends_when_it_has_been_idle():
    async with gateway(sessions=SessionSettings(idle_s=0.2)) as g:
        keeping = asyncio.create_task(g.app.sessions.keep())
        session_id = (await begin(g))["sessionId"]
        await until_ended(g, session_id)
        assert await g.say("POST", f"{RESULT}&session={session_id}") == gone(session_id)
        await wait_on_loop(lambda: g.platform.ended_sessions, what="the platform to hear of the session's end")
        assert g.platform.ended_sessions == [("guest", session_id)]
        assert await g.store.scan(SESSIONS) == []
        keeping.cancel()


@on_a_loop
async def test_a_session_whose_invocation_runs_is_not_idle(monkeypatch):
    passed_s = 0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s, time_ns=time.time_ns)
    monkeypatch.setattr("aliquot.live.invocations.sessions.registry.time", clock)
    async with gateway(sessions=SessionSettings(idle_s=1000)) as g:
        session_id = (await begin(g))["sessionId"]
        idle = (await begin(g))["sessionId"]
        g.platform.hold = True
        await g.post(ECHO, headers={HEADER: session_id})
        passed_s = 2000
        await g.app.sessions.end_idle()
        assert (await g.get(f"{ALL}/{idle}")).status_code == 404
        assert (await g.get(f"{ALL}/{session_id}")).status_code == 200
        g.platform.finish(g.platform.calls[0])
        await g.app.sessions.end_idle()
        assert (await g.get(f"{ALL}/{session_id}")).status_code == 404


@on_a_loop
async def test_a_running_call_continues_after_its_session():
    async with gateway() as g:
        session_id = (await begin(g))["sessionId"]
        g.platform.hold = True
        accepted = (await g.post(ECHO, headers={HEADER: session_id})).json()
        await g.delete(f"{ALL}/{session_id}")
        g.platform.finish(g.platform.calls[0])
        record = (await g.get(f"{NS}/activations/{accepted['activationId']}")).json()
        assert annotations(record)["session"] == session_id


@on_a_loop
async def test_sessions_end_with_their_namespace():
    async with gateway() as g:
        stranger = basic(await g.catalogue.create_namespace("stranger"))
        _, made = await g.say("POST", ALL, auth=stranger)
        await g.delete("/operator/v1/namespaces/stranger", headers=AS_OPERATOR, auth=None)
        assert g.platform.ended_sessions == [("stranger", made["sessionId"])]
        again = basic(await g.catalogue.create_namespace("stranger"))
        assert await g.say("GET", ALL, auth=again) == (200, [])
        assert await g.store.scan(SESSIONS) == []


@on_a_loop
async def test_sessions_and_their_last_use_survive_a_restart():
    async with gateway() as g:
        used = await begin(g, name="used", user="ann", metadata={"a": 1})
        idle = await begin(g, name="idle")
        await g.post(f"{RESULT}&session={used['sessionId']}")
        assert await g.store.scan(USES) == []  # a single use is not written at once
        await g.app.sessions.write_uses()
        assert len(await g.store.scan(USES)) == 1
        shown = (await g.get(f"{ALL}/{used['sessionId']}")).json()
        again = next_book(g)
        await again.load(g.catalogue.namespace)
        living = again.find("guest", used["sessionId"])
        assert (living.used_ms, living.invocations) == (shown["used"], 1)
        assert (living.session.user, living.session.metadata) == ("ann", {"a": 1})
        assert sorted(one.session.name for one in again.all("guest")) == ["idle", "used"]
        await again.end("guest", idle["sessionId"])
        await again.end("guest", used["sessionId"])
        assert await g.store.scan(SESSIONS) == await g.store.scan(USES) == []


@on_a_loop
async def test_idle_time_counts_while_no_server_runs():
    async with gateway() as g:
        await begin(g)
        await asyncio.sleep(0.06)
        again = next_book(g, idle_s=0.05)
        await again.load(g.catalogue.namespace)
        assert again.all("guest") == []
        await again.end_idle()
        assert await g.store.scan(SESSIONS) == []


@on_a_loop
async def test_sessions_of_a_deleted_or_recreated_namespace_are_dropped():
    async with gateway() as g:
        anew = replace(g.catalogue.namespace("guest"), owner="guest:another")
        for owner in (anew, None):
            await begin(g)
            again = next_book(g)
            await again.load(lambda _, owner=owner: owner)
            assert again.all("guest") == []
            assert await g.store.scan(SESSIONS) == []


@on_a_loop
async def test_a_store_that_fails_leaves_sessions_as_they_are():
    async with gateway() as g:
        session_id = (await begin(g, name="a"))["sessionId"]
        g.store.fail("the disk is full")
        assert await g.say("POST", ALL) == (503, "the disk is full")
        assert await g.say("PATCH", f"{ALL}/{session_id}", json={"name": "b"}) == (503, "the disk is full")
        assert await g.say("DELETE", f"{ALL}/{session_id}") == (503, "the disk is full")
        await g.app.sessions.close()
        g.store.fail(None)
        assert [one["name"] for one in (await g.get(ALL)).json()] == ["a"]
        assert await g.say("POST", f"{RESULT}&session={session_id}", json={"x": 1}) == (200, {"x": 1})
        assert (await g.delete(f"{ALL}/{session_id}")).status_code == 200
