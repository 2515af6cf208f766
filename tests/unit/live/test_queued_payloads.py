"""Payloads of calls that wait: on disk once they are accepted, and otherwise within their namespace's memory."""

import asyncio
from unittest.mock import patch

import msgspec
import pytest
from msgspec.structs import replace
from rig import Rig, on_a_rig
from stored import activation

from aliquot.budgets import Budget, MappingBudget
from aliquot.live.bodies.large import allocate
from aliquot.live.catalogue.catalogue import NAMESPACES
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.errors import RateLimitError
from aliquot.live.invocations.rate_limits import CallTotals, RateLimiters, RateLimits
from aliquot.live.invocations.recovery import DELETED, recover_calls
from aliquot.live.invocations.sequences.composer import Composer
from aliquot.live.node.base import Status
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES, Document, StoreError
from aliquot.live.store.records import SEQUENCE, Accepted, Action, Exec, FullName, Namespace, Pair
from aliquot.live.store.sqlite import SqliteStore
from aliquot.testing.waiting import wait_on_loop

ECHO = Action("guest", "echo", "0.0.1", Exec("python:3.11", "def main(args): return args"), revision="1")
PAIR = Action(
    "guest", "pair", "0.0.1", Exec(SEQUENCE, components=(FullName("guest", "echo"), FullName("guest", "echo")))
)
LARGE = b'{"text":"%b"}' % (b"x" * SMALL_PAYLOAD_BYTES)

run = on_a_rig(deployed=(ECHO,))


def in_memory(size):
    body = allocate(size)
    body[:] = b"y" * size
    return body


@pytest.mark.parametrize("payload", [LARGE, b"y" * 2_000_000])
def test_the_payload_of_an_accepted_call_is_on_disk_until_it_runs_and_again_while_it_runs(tmp_path, payload):
    @run
    async def scene(rig):
        call = rig.call(ECHO)
        call.payload = payload if payload is LARGE else in_memory(len(payload))
        await rig.service.accept(call)
        assert (call.payload, call.on_disk, call.reserved) == (b"", True, None)
        sandbox = await rig.running()
        assert bytes(rig.node.running[sandbox].payload) == payload
        assert (call.payload, call.on_disk) == (b"", True)
        rig.node.finish(sandbox)
        await rig.until_ended(call)

    scene(tmp_path)


@run
async def test_a_small_payload_of_an_accepted_call_is_not_read_again(rig):
    call = rig.call(ECHO)
    await rig.service.accept(call)
    assert (call.payload, call.on_disk) == (b"{}", False)


@run
async def test_a_run_that_has_to_be_repeated_gets_its_payload_again(rig):
    call = rig.call(ECHO)
    call.payload = LARGE
    await rig.service.accept(call)
    sandbox = await rig.running()
    del rig.node.running[sandbox]
    rig.node.refuse(sandbox)
    again = await rig.running()
    assert rig.node.running[again].payload == LARGE
    rig.node.finish(again)
    await rig.until_ended(call)
    assert call.outcome.status is Status.SUCCESS


@run
async def test_the_payload_of_a_call_that_is_no_longer_awaited_leaves_the_memory(rig):
    call = rig.call(ECHO)
    call.payload = LARGE
    rig.service.submit(call)
    await rig.turn()
    await rig.service.detach(call)
    assert (call.payload, call.on_disk) == (b"", True)
    sandbox = await rig.running()
    assert rig.node.running[sandbox].payload == LARGE


@run
async def test_a_store_that_fails_for_a_while_delays_the_run_and_does_not_lose_it(rig):
    read, failures = rig.store.payload, []

    async def payload(activation_id):
        if len(failures) < 3:
            failures.append(activation_id)
            raise StoreError("the disk is away")
        return await read(activation_id)

    rig.store.payload = payload
    call = rig.call(ECHO)
    call.payload = LARGE
    await rig.service.accept(call)
    with patch("aliquot.live.invocations.call_registry.STORE_RETRY_DELAY_S", 0.001):
        sandbox = await rig.running()
    assert rig.node.running[sandbox].payload == LARGE
    assert len(failures) == 3


def test_what_an_earlier_server_accepted_stays_on_disk_until_it_runs(tmp_path):
    async def crash():
        store = await SqliteStore.open(tmp_path)
        await store.accept(Accepted("1" * 32, "guest", "echo", 1, LARGE))
        await store.accept(Accepted("2" * 32, "guest", "pair", 2, LARGE))
        await store.close()

    async def restart():
        async with Rig.open(tmp_path, catalogued=(ECHO, PAIR)) as rig:
            assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 2
            assert (rig.service.calls["1" * 32].payload, rig.service.calls["1" * 32].on_disk) == (b"", True)
            seen = []

            def look():
                rig.make_ready()
                for sandbox, request in list(rig.node.running.items()):
                    seen.append(bytes(request.payload))
                    rig.node.finish(sandbox)
                return rig.service.calls

            await wait_on_loop(look, lambda calls: not calls, what="the end of all calls")
            assert seen.count(LARGE) == 2
            assert await rig.store.unfinished() == []

    asyncio.run(crash())
    asyncio.run(restart())


@on_a_rig(catalogued=(ECHO, PAIR))
async def test_a_result_that_finds_no_memory_as_the_next_payload_ends_its_sequence_with_the_reason(rig):
    rig.composer = Composer(
        rig.service, rig.store, rig.catalogue.resolve, payloads=Budget("payloads", "bytes", 4 * SMALL_PAYLOAD_BYTES)
    )
    fits, too_large = rig.call("pair"), rig.call("pair")
    rig.composer.submit(fits)
    await rig.finish(b'{"text":"%b"}' % (b"x" * (2 * SMALL_PAYLOAD_BYTES - 100)))
    await rig.finish(b"{}")
    assert fits.outcome.status is Status.SUCCESS
    rig.composer.submit(too_large)
    await rig.finish(b'{"text":"%b"}' % (b"x" * 2 * SMALL_PAYLOAD_BYTES))
    await rig.until_ended(too_large)
    assert b"payloads: the namespace holds 0 bytes and asks for" in bytes(too_large.outcome.result)


# --- the limits of namespaces ----------------------------------------------------------------------------


def a_call(payload=b"{}"):
    return Call("0" * 32, Namespace("guest"), ResolvedAction.own(ECHO), payload)


def limiters(max_running=40, payload_bytes=100_000):
    totals = CallTotals(max_running, MappingBudget("payloads", payload_bytes, 10))
    limits = RateLimiters(RateLimits(), totals=totals)
    return limits.limiter(Namespace("greedy")), limits.limiter(Namespace("neighbour")), totals


def test_a_namespace_has_half_of_the_calls_that_the_others_leave():
    greedy, neighbour, totals = limiters()
    for _ in range(20):
        greedy.check()
        greedy.begin(a_call())
    with pytest.raises(RateLimitError, match=r"in flight \(count: 20, allowed: 20\)"):
        greedy.check()
    for _ in range(10):
        neighbour.check()
        neighbour.begin(a_call())
    with pytest.raises(RateLimitError, match=r"in flight \(count: 10, allowed: 10\)"):
        neighbour.check()
    for _ in range(20):
        greedy.end()
    neighbour.check()
    assert (greedy.running, neighbour.running, totals.running) == (0, 10, 10)


def test_payloads_in_memory_are_counted_by_namespace_until_their_call_is_gone():
    greedy, neighbour, totals = limiters()
    calls = [a_call(b"x" * 10_000) for _ in range(5)]
    for call in calls:
        greedy.begin(call)
    refused = a_call(b"x" * 10_000)
    with pytest.raises(RateLimitError, match="holds 50000 bytes and asks for 10000 more; it may hold 50000"):
        greedy.begin(refused)
    assert greedy.running == 5
    greedy.begin(a_call())  # a small one is counted as a call
    neighbour.begin(a_call(b"x" * 10_000))
    calls.pop().leave_payload_on_disk()
    greedy.begin(refused)
    calls.clear()
    del call, refused
    assert totals.payloads.bytes.held("greedy") == 0


def test_calls_of_one_event_get_it_with_their_actions_parameters_also_after_a_crash(tmp_path):
    with_parameter = replace(ECHO, name="with", parameters=(Pair("more", 1),), revision="2")
    event = b'{"text":"%b"}' % (b"x" * SMALL_PAYLOAD_BYTES)
    fired = activation(99, owner="guest")

    async def crash():
        store = await SqliteStore.open(tmp_path)
        await store.put(NAMESPACES, Document("guest", "guest", msgspec.json.encode(Namespace("guest"))))
        for action in (ECHO, with_parameter):
            await store.put("actions", Document("guest", action.name, msgspec.json.encode(action)))
        names = {1: "echo", 2: "with"}
        calls = [Accepted(f"{n:032x}", "guest", name, 0, b"", event=fired.id) for n, name in names.items()]
        await store.accept_all(calls, fired, event)
        await store.close()

    async def restart():
        async with Rig.open(tmp_path) as rig:
            assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 2

            def look():
                rig.make_ready()
                return rig.node.running

            running = await wait_on_loop(look, lambda running: len(running) == 2, what="two runs")
            payloads = [msgspec.json.decode(one.payload) for one in running.values()]
            text = "x" * SMALL_PAYLOAD_BYTES
            assert sorted(payloads, key=len) == [{"text": text}, {"more": 1, "text": text}]

    asyncio.run(crash())
    asyncio.run(restart())


def test_a_call_of_a_deleted_namespace_does_not_run_in_a_later_one_of_its_name(tmp_path):
    async def crash():
        store = await SqliteStore.open(tmp_path)
        await store.put(
            NAMESPACES, Document("guest", "guest", msgspec.json.encode(Namespace("guest", owner="guest:2")))
        )
        await store.put("actions", Document("guest", "echo", msgspec.json.encode(ECHO)))
        await store.accept(Accepted(f"{1:032x}", "guest:1", "echo", 0, b"{}"))
        await store.close()

    async def restart():
        async with Rig.open(tmp_path) as rig:
            assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 1
            await rig.turn()
            assert not rig.node.running
            assert await rig.store.activation("guest:2", f"{1:032x}") is None
            assert DELETED.encode() in (await rig.store.activation("guest:1", f"{1:032x}")).response

    asyncio.run(crash())
    asyncio.run(restart())
