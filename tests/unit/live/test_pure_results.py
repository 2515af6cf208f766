"""Calls of pure functions: results that are used again, equal calls that share a run, and what does not."""

import msgspec
from rig import on_a_rig

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.node.base import Status
from aliquot.live.store.records import Action, Exec, Namespace, Pair

CODE = Exec("python:3.11", "def main(args): return args")
NOTES = (Pair("pure", value=True), Pair("cache-ttl-ms", value=60_000))
PURE = Action("guest", "pure", "0.0.1", CODE, revision="1", annotations=NOTES)
PLAIN = Action("guest", "plain", "0.0.1", CODE, revision="2")

run = on_a_rig(deployed=(PURE, PLAIN))


def call_of(rig, payload=b'{"x":1}', action=PURE, **more):
    call = rig.call(action, **more)
    call.payload = payload
    return call


def is_cached(call):
    annotations = msgspec.json.decode(call.activation.summary)["annotations"]
    return {"key": "cached", "value": True} in annotations


async def ran(rig, call, result=b'{"y":1}'):
    rig.service.submit(call)
    await rig.turn()
    if call not in rig.ended:
        await rig.finish(result)
        await rig.until_ended(call)
    return call.outcome.result


@run
async def test_an_equal_call_gets_the_result_without_a_run(rig):
    first, again, other = call_of(rig), call_of(rig), call_of(rig, b'{"x":2}')
    assert await ran(rig, first) == b'{"y":1}'
    assert await ran(rig, again) == b'{"y":1}'
    assert [is_cached(call) for call in (first, again)] == [False, True]
    assert (await rig.store.activation("guest", again.id)) is not None
    assert await ran(rig, other, b'{"y":2}') == b'{"y":2}'
    assert rig.service.status()["results"]["hits"] == 1


@run
async def test_only_functions_that_ask_for_it_have_their_results_kept(rig):
    assert await ran(rig, call_of(rig, action=PLAIN)) == b'{"y":1}'
    assert await ran(rig, call_of(rig, action=PLAIN), b'{"y":2}') == b'{"y":2}'


@run
async def test_a_call_that_is_not_waited_for_gets_a_kept_result_too(rig):
    await ran(rig, call_of(rig))
    call = call_of(rig)
    await rig.service.accept(call)
    await rig.until_ended(call)
    assert is_cached(call)
    assert (await rig.queue()) == []


@run
async def test_equal_calls_under_way_share_one_run(rig):
    calls = [call_of(rig) for _ in range(3)]
    for call in calls:
        rig.service.submit(call)
    sandbox = await rig.running()
    rig.node.finish(sandbox, b'{"y":1}')
    await rig.until_ended(*calls)
    assert [call.outcome.result for call in calls] == [b'{"y":1}'] * 3
    assert [is_cached(call) for call in calls] == [False, True, True]
    assert rig.node.starts == [1]


@run
async def test_equal_calls_do_not_share_an_error(rig):
    first, second, third = (call_of(rig) for _ in range(3))
    for call in (first, second, third):
        rig.service.submit(call)
    sandbox = await rig.running()
    rig.node.lose(sandbox)
    await rig.until_ended(first)
    await rig.finish(b'{"y":1}')
    await rig.until_ended(second, third)
    assert first.outcome.status is Status.DEVELOPER_ERROR
    assert [call.outcome.result for call in (second, third)] == [b'{"y":1}'] * 2
    assert [is_cached(call) for call in (second, third)] == [False, True]


@run
async def test_a_call_that_waits_for_an_equal_one_can_be_cancelled(rig):
    first, second = call_of(rig), call_of(rig)
    rig.service.submit(first)
    rig.service.submit(second)
    await rig.turn()
    assert rig.service.cancel("guest", second.id)
    await rig.until_ended(second)
    await rig.finish(b'{"y":1}')
    await rig.until_ended(first)
    assert second.outcome.status is not Status.SUCCESS


@run
async def test_a_new_version_forgets_the_results_of_the_old_one(rig):
    await ran(rig, call_of(rig))
    newer = Action("guest", "pure", "0.0.2", CODE, revision="3", annotations=NOTES)
    rig.service.deploy(ResolvedAction.own(newer))
    assert await ran(rig, call_of(rig, action=newer), b'{"y":2}') == b'{"y":2}'


@run
async def test_tenants_do_not_share_results(rig):
    await ran(rig, call_of(rig))
    bobs = Action("bob", "pure", "0.0.1", CODE, revision="4", annotations=NOTES)
    rig.service.deploy(ResolvedAction.own(bobs))
    call = call_of(rig, action=bobs)
    call.namespace = Namespace("bob")
    assert await ran(rig, call, b'{"y":2}') == b'{"y":2}'
