"""Heads that were read before: the short way skips the parser, and no key, limit, name or call."""

import asyncio
import random

import pytest
from gateway_client import ACTIONS, PUT, on_a_loop
from gateway_wire import SERVED, served
from msgspec.structs import replace
from virtual_time import in_virtual_time

from aliquot.live.gateway.http.query import InvokeOptions
from aliquot.live.gateway.invocation import heads
from aliquot.live.gateway.invocation.heads import KnownHead, KnownHeads
from aliquot.live.store.records import Quota

BLOCKING = f"{ACTIONS}/echo?blocking=true&result=true"
BODY = b'{"n":1}'
pytestmark = pytest.mark.usefixtures("_with_and_without_a_gateway_process")


class Parsed:
    """Counts the heads that the parser has read."""

    def __init__(self):
        self.count = 0

    def __call__(self, bound):
        parsed = self

        class Counting(bound):
            def on_headers_complete(self):
                parsed.count += 1
                super().on_headers_complete()

        return Counting


async def call(wire, path=BLOCKING, body=BODY, **headers):
    await wire.send(wire.head("POST", path, Content_Length=len(body), **headers) + body)
    return await wire.answer()


@on_a_loop
async def test_a_head_is_parsed_once_and_every_call_is_made():
    parsed = Parsed()
    async with served(parsed) as (g, connect):
        wires = [await connect(), await connect()]
        answers = [await call(wire, body=b'{"n":%d}' % n) for n in range(5) for wire in wires]
        assert [(status, body) for status, _, body in answers] == [
            (200, b'{"n":%d}' % n) for n in range(5) for _ in wires
        ]
        assert parsed.count == 1
        ids = [headers["x-openwhisk-activation-id"] for _, headers, _ in answers]
        assert ids == [made.id for made in g.platform.calls]
        assert len({headers["x-request-id"] for _, headers, _ in answers}) == 10


@on_a_loop
async def test_a_head_is_parsed_once_if_its_body_comes_later():
    parsed = Parsed()
    async with served(parsed) as (g, connect):
        wire = await connect()
        assert (await call(wire))[0] == 200
        for _ in range(3):
            await wire.send(wire.head("POST", BLOCKING, Content_Length=len(BODY)))
            await asyncio.sleep(0.02)
            await wire.send(BODY)
            assert (await wire.answer())[2] == BODY
        assert (parsed.count, len(g.platform.calls)) == (1, 4)
        await wire.send(wire.head("POST", BLOCKING, Content_Length=len(BODY)))
        await asyncio.sleep(0.02)
        await wire.send(BODY[:3])
        await asyncio.sleep(0.02)
        await wire.send(BODY[3:] + wire.head("GET", "/health"))
        assert [(await wire.answer())[0] for _ in range(2)] == [200, 200]


@on_a_loop
async def test_a_head_that_always_comes_before_its_body_is_remembered_too():
    parsed = Parsed()
    async with served(parsed) as (g, connect):
        wire = await connect()
        for number in range(4):
            await wire.send(wire.head("POST", BLOCKING, Content_Length=7))
            await asyncio.sleep(0.02)
            await wire.send(b'{"n":%d}' % number)
            assert (await wire.answer())[2] == b'{"n":%d}' % number
        assert (parsed.count, len(g.platform.calls)) == (1, 4)


@in_virtual_time
async def test_a_known_head_whose_body_is_missing_is_a_408():
    async with served(body_s=0.2) as (g, connect):
        wire = await connect()
        assert (await call(wire))[0] == 200
        await wire.send(wire.head("POST", BLOCKING, Content_Length=len(BODY)))
        status, text, headers = await wire.error()
        assert (status, text) == (408, "The request's body did not arrive in time.")
        assert headers["connection"] == "close"
        assert len(g.platform.calls) == 1


@on_a_loop
async def test_a_known_head_with_a_wrong_key_is_refused_before_its_body(monkeypatch):
    monkeypatch.setitem(SERVED, "forwarded", False)  # a gateway process reads small bodies whole before a check
    async with served() as (g, connect):
        wire = await connect()
        assert (await call(wire))[0] == 200
        await g.catalogue.add_key("guest", revoke_others=True)
        await wire.send(wire.head("POST", BLOCKING, Content_Length=len(BODY)))
        assert (await wire.answer())[0] == 401


@on_a_loop
async def test_a_key_that_is_revoked_opens_nothing_any_more():
    async with served() as (g, connect):
        wire = await connect()
        assert [(await call(wire))[0] for _ in range(2)] == [200, 200]
        await g.catalogue.add_key("guest", revoke_others=True)
        assert (await call(wire))[0] == 401
        assert len(g.platform.calls) == 2


@on_a_loop
async def test_the_key_of_a_sandbox_ends_with_it():
    async with served() as (g, connect):
        brief, wire = g.catalogue.ephemeral_keys.issue("guest"), await connect()
        wire.use_key(brief)
        assert [(await call(wire))[0] for _ in range(2)] == [200, 200]
        g.catalogue.ephemeral_keys.forget(brief)
        assert (await call(wire))[0] == 401


@on_a_loop
async def test_an_action_that_is_changed_or_removed_is_seen_at_once():
    async with served() as (g, connect):
        wire = await connect()
        assert [(await call(wire))[0] for _ in range(2)] == [200, 200]
        changed = {**PUT, "parameters": [{"key": "more", "value": 2}]}
        assert (await g.put(f"{ACTIONS}/echo?overwrite=true", json=changed)).status_code == 200
        assert (await call(wire))[2] == b'{"more":2,"n":1}'
        assert (await g.delete(f"{ACTIONS}/echo")).status_code == 200
        assert (await call(wire))[0] == 404


@on_a_loop
async def test_limits_apply_and_a_change_of_them_too():
    async with served() as (g, connect):
        wire = await connect()
        assert [(await call(wire))[0] for _ in range(3)] == [200, 200, 200]
        limit = Quota(invocations_per_minute=2)
        await g.catalogue.update_namespace("guest", lambda old: replace(old, quota=limit))
        statuses = [(await call(wire))[0] for _ in range(7)]  # two minutes at most, of two calls each
        assert statuses.count(429) >= 3
        assert len(g.platform.calls) == 3 + statuses.count(200)


@on_a_loop
async def test_a_connection_belongs_to_the_caller_of_its_last_request():
    async with served() as (g, connect):
        other, wire = await g.catalogue.create_namespace("other"), await connect()
        for _ in range(2):
            wire.use_key(g.key)
            assert (await call(wire))[0] == 200
            wire.use_key(other)
            assert (await call(wire))[0] == 404  # it has no such action
        held = g.app.connections._known.held
        assert (held("guest"), held("other")) == (0, 1)


@on_a_loop
async def test_bodies_are_checked_each_time():
    async with served() as (_, connect):
        wire = await connect()
        assert [(await call(wire, body=body))[0] for body in (BODY, b"{broken", BODY)] == [200, 400, 200]


@on_a_loop
async def test_a_request_with_an_id_keeps_it():
    async with served() as (_, connect):
        wire = await connect()
        for name in ("one", "two", "one"):
            assert (await call(wire, X_Request_ID=name))[1]["x-request-id"] == name


@on_a_loop
async def test_a_known_head_does_not_reopen_a_refused_connection():
    """The refused request is complete: its body had arrived, in too much framing."""
    async with served(head_bytes=1000) as (g, connect):
        wire = await connect()
        assert [(await call(wire))[0] for _ in range(2)] == [200, 200]
        await wire.send(wire.head("POST", BLOCKING, Transfer_Encoding="chunked") + b"2;" + b"x" * 1200)
        await asyncio.sleep(0.05)
        await wire.send(b"\r\n{}\r\n0\r\n\r\n")
        assert [(await wire.answer())[0] for _ in range(2)] == [200, 400]
        await wire.send(wire.head("POST", BLOCKING, Content_Length=len(BODY)) + BODY)
        assert await wire.reader.read() == b""
        assert len(g.platform.calls) == 3


@pytest.mark.parametrize("seed", range(4))
@on_a_loop
async def test_requests_that_are_cut_and_joined_anywhere_are_answered_in_order(seed):
    chance = random.Random(seed)
    async with served() as (_, connect):
        wire = await connect()
        sent = [b'{"n":%d}' % chance.randrange(20) for _ in range(60)]
        stream = b"".join(wire.head("POST", BLOCKING, Content_Length=len(body)) + body for body in sent)
        one = len(stream) // len(sent)

        async def write():
            at = 0
            while at < len(stream):
                to_body = stream.index(b"\r\n\r\n", at) + 4 - at if b"\r\n\r\n" in stream[at:] else one
                size = chance.choice((one, to_body, 2 * one, chance.randrange(1, 2 * one)))
                await wire.send(stream[at : at + size])
                at += size
                await asyncio.sleep(0.001)

        writing = asyncio.create_task(write())
        assert [(await wire.answer())[2] for _ in sent] == sent
        await writing


def test_neither_secrets_nor_more_than_a_bounded_number_of_heads_are_kept(monkeypatch):
    monkeypatch.setattr(heads, "MAX_HEADS", 10)
    known = KnownHeads()
    options = InvokeOptions(blocking=True, result=True, timeout_s=None)
    for number in range(25):
        data = b"POST /api/v1/namespaces/_/actions/a HTTP/1.1\r\nAuthorization: secret-%d\r\n\r\n" % number
        head = KnownHead(b"/path", options, b"digest", len(data), 0)
        known.remember(data, head)
        assert known.find(data) == (head, b"")
        assert known.find(data + b"more") is None
        assert known.find(data[:-1]) is None
        assert b"secret" not in b"".join(known._heads)
    assert len(known) <= 10
    long = b"POST /api/v1/namespaces/_/actions/a HTTP/1.1\r\nX: " + b"y" * heads.MAX_HEAD_BYTES + b"\r\n\r\n"
    known.remember(long, KnownHead(b"/path", options, b"digest", len(long), 0))
    assert known.find(long) is None
