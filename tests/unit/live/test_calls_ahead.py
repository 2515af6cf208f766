"""Calls that the service hands to a busy sandbox: each has its record, and none runs twice."""

import msgspec
from rig import on_a_rig

from aliquot.config import PolicySettings
from aliquot.live.store.records import Action, Exec

ECHO = Action("guest", "echo", "0.0.1", Exec("python:3.11", "def main(args): return args"), revision="1")
SHORT_S = 0.00002

run = on_a_rig(deployed=(ECHO,))


async def busy(rig, count):
    """Let a warm sandbox, number 1, be busy with one call and have the others ahead, and return them all."""
    rig.service.submit(rig.call(ECHO))
    await rig.turn()
    rig.make_ready()
    await rig.turn()
    rig.node.finish(1, inside_s=SHORT_S)
    await rig.turn()
    rig.ended.clear()
    calls = [rig.call(ECHO) for _ in range(count)]
    for call in calls:
        rig.service.submit(call)
    await rig.turn()
    assert rig.node.running[1].invocation == calls[0].id
    assert [request.invocation for request in rig.node.ahead.get(1, ())] == [call.id for call in calls[1:]]
    assert len(rig.node.started) == 1
    return calls


def response(call):
    return msgspec.json.decode(call.activation.response)


@run
async def test_every_call_has_its_own_answer_record_and_times(rig):
    calls = await busy(rig, 3)
    for number in range(3):
        rig.node.finish(1, b'{"n":%d}' % number, inside_s=SHORT_S)
        await rig.turn()
    assert rig.ended == calls
    for number, call in enumerate(calls):
        assert response(call)["result"] == {"n": number}
        assert (await rig.record(call.id))["result"] == {"n": number}
        assert call.run.begun_s > 0
    begun = [call.run.begun_s for call in calls]
    assert begun == sorted(begun)


@run
async def test_a_call_handed_ahead_begins_when_the_one_before_ends(rig):
    _, ahead = await busy(rig, 2)
    assert not ahead.run.begun_s
    rig.node.finish(1, inside_s=SHORT_S)
    assert ahead.run.begun_s


@run
async def test_calls_that_are_taken_back_run_in_another_sandbox(rig):
    first, second = await busy(rig, 2)
    rig.node.take_back(1)
    await rig.turn()
    await rig.finish_all()
    assert sorted(rig.ended, key=id) == sorted([first, second], key=id)
    assert all(response(call)["success"] for call in (first, second))


@run
async def test_a_sandbox_that_dies_takes_only_the_call_with_it_that_ran(rig):
    first, second = await busy(rig, 2)
    rig.node.ahead.clear()
    rig.node.lose(1, "it died")
    await rig.turn()
    assert rig.ended == [first]
    assert response(first)["status"] == "action developer error"
    await rig.finish_all()
    assert rig.ended == [first, second]
    assert response(second)["success"]


@run
async def test_a_cancelled_call_ends_without_the_others(rig):
    first, second, third = await busy(rig, 3)
    assert rig.service.cancel("guest", second.id)
    await rig.turn()
    assert rig.ended == [second]
    assert response(second)["status"] == "whisk internal error"
    await rig.finish_all()
    assert set(rig.ended) == {first, second, third}
    assert all(response(call)["success"] for call in (first, third))
    assert rig.node.stopped == []


@run
async def test_the_call_that_runs_is_cancelled_with_its_sandbox_and_the_others_run_elsewhere(rig):
    first, second = await busy(rig, 2)
    assert rig.service.cancel("guest", first.id)
    await rig.turn()
    assert rig.ended == [first]
    assert rig.node.stopped == [1]
    await rig.finish_all()
    assert rig.ended == [first, second]
    assert response(second)["success"]


@run
async def test_a_call_that_must_survive_a_crash_is_not_handed_ahead(rig):
    """Its start is on disk before it runs. It goes back to the scheduler, which gives it a sandbox of its own."""
    (first,) = await busy(rig, 1)
    queued = rig.call(ECHO)
    await rig.service.accept(queued)
    await rig.turn()
    assert not rig.node.ahead.get(1)
    await rig.finish_all()
    assert {first, queued} == set(rig.ended)
    assert await rig.queue() == []


@on_a_rig(deployed=(ECHO,), settings=PolicySettings("fcfs"))  # which does not wait for the busy sandbox
async def test_calls_are_handed_ahead_beside_one_that_must_survive_a_crash(rig):
    """The scheduler knows it from the arrival, so it need not be taken back, which would stop the others."""
    await busy(rig, 1)
    await rig.service.accept(rig.call(ECHO))
    await rig.turn()
    others = [rig.call(ECHO) for _ in range(2)]
    for call in others:
        rig.service.submit(call)
    await rig.turn()
    assert [request.invocation for request in rig.node.ahead[1]] == [call.id for call in others]
    await rig.finish_all()


@run
async def test_no_call_is_handed_ahead_behind_one_whose_start_is_not_on_disk(rig):
    await busy(rig, 1)
    await rig.finish_all()
    rig.ended.clear()
    queued, other = rig.call(ECHO), rig.call(ECHO)
    await rig.service.accept(queued)
    rig.service.submit(other)
    await rig.turn()
    assert not any(rig.node.ahead.values())
    await rig.finish_all()
    assert {queued, other} == set(rig.ended)
