"""The service between gateway, core, node and store: what happens at the edges, with a node that does as it is told."""

import asyncio
import time
from unittest.mock import patch

import msgspec
import pytest
from rig import on_a_rig

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.errors import OverloadedError, RateLimitError
from aliquot.live.node.base import Status
from aliquot.live.store.records import Action, Exec, Namespace, Pair
from aliquot.testing.waiting import wait_on_loop

GUEST = Namespace("guest")
ECHO = Action("guest", "echo", "0.0.1", Exec("python:3.11", "def main(args): return args"), revision="1")


def summary(call):
    annotations = msgspec.json.decode(call.activation.summary)["annotations"]
    return {pair["key"]: pair["value"] for pair in annotations}


run = on_a_rig(deployed=(ECHO,))


@run
async def test_a_call_is_run_recorded_and_answered(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    rig.node.ready(1, ("hello from import",))
    await rig.turn()
    rig.node.finish(1, b'{"x":1}', ("hello from run",))
    await rig.turn()
    assert rig.ended == [call]
    record = await rig.store.activation("guest", call.id)
    assert msgspec.json.decode(record.response) == {
        "status": "success", "success": True, "result": {"x": 1}, "size": 7,
    }  # fmt: skip
    assert msgspec.json.decode(record.logs) == ["hello from import", "hello from run"]
    told = summary(call)
    assert told["start"] == "cold"
    assert told["initTime"] == 10
    assert told["device"] == "cpu"
    assert told["deviceTime"] == 1.0
    assert told["policy"].startswith("fair_resident+adaptive+cost_aware+hard+first_fit+threshold+")
    assert told["reason"].startswith("most urgent")


@run
async def test_a_lost_device_is_used_no_more(rig):
    first, second = rig.call(ECHO), rig.call(ECHO)
    rig.service.submit(first)
    await rig.turn()
    rig.node.lose(1, "The device cpu was lost: it does not answer.")
    rig.node.listener.device_lost("cpu", "it does not answer")
    await rig.until_ended(first)
    rig.service.submit(second)
    await rig.until_ended(first, second)
    assert rig.node.starts == [1]
    assert (second.outcome, second.reason) == (None, "there are no devices")


@run
async def test_a_warm_call_has_no_init_time(rig):
    for _ in range(2):
        rig.service.submit(rig.call(ECHO))
        await rig.turn()
        if not rig.ended:
            rig.node.ready(1)
            await rig.turn()
        rig.node.finish(1)
        await rig.turn()
    assert "initTime" not in summary(rig.ended[1])
    assert summary(rig.ended[1])["start"] == "warm"


@run
async def test_a_lost_sandbox_fails_its_call_with_its_own_words(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    rig.node.lose(1, "does not compile")
    await rig.turn()
    assert rig.ended == [call]
    assert call.outcome.status is Status.DEVELOPER_ERROR
    assert b"does not compile" in call.activation.response


@run
async def test_a_sandbox_that_dies_idle_as_it_is_chosen_costs_the_call_nothing(rig):
    rig.service.submit(rig.call(ECHO))
    await rig.turn()
    rig.node.ready(1)
    await rig.turn()
    rig.node.finish(1)
    await rig.turn()
    call = rig.call(ECHO)
    rig.service.submit(call)
    rig.service._engine._step()  # the core chooses sandbox 1 …
    rig.node.refuse(1)  # … which turns out to be shutting down
    await rig.turn()
    assert call.id in rig.service.calls
    rig.node.ready(2)
    await rig.turn()
    rig.node.finish(2)
    await rig.turn()
    assert call.outcome.status is Status.SUCCESS
    assert call.run.attempts == 2


@run
async def test_it_is_not_tried_for_ever(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    for sandbox in (1, 2, 3):
        rig.node.ready(sandbox)
        await rig.turn()
        rig.node.refuse(sandbox)
        await rig.turn()
    assert rig.ended == [call]
    assert call.outcome.status is Status.INTERNAL_ERROR


@run
async def test_an_accepted_call_is_on_disk_until_its_record_is(rig):
    call = rig.call(ECHO)
    await rig.service.accept(call)
    assert [(entry.id, entry.started) for entry in await rig.store.unfinished()] == [(call.id, False)]
    rig.node.ready(1)
    await wait_on_loop(lambda: rig.node.running, what="a run")
    assert [entry.started for entry in await rig.store.unfinished()] == [True]
    rig.node.finish(1)
    await rig.until_ended(call)
    assert await rig.store.unfinished() == []
    assert await rig.store.activation("guest", call.id)


@run
async def test_a_call_that_is_no_longer_awaited_is_kept(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    rig.node.ready(1)
    await rig.turn()
    await rig.service.detach(call)
    assert [(entry.id, entry.started) for entry in await rig.store.unfinished()] == [(call.id, True)]
    rig.node.finish(1)
    await rig.until_ended(call)
    assert await rig.store.unfinished() == []


@run
async def test_an_end_that_overtakes_its_detaching_leaves_nothing_behind(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    rig.node.ready(1)
    await rig.turn()
    detaching = asyncio.create_task(rig.service.detach(call))
    await asyncio.sleep(0)
    rig.node.finish(1)
    await detaching
    await rig.until_ended(call)
    assert await rig.store.unfinished() == []
    assert await rig.store.activation("guest", call.id)


@run
async def test_a_new_revision_never_runs_in_an_old_sandbox(rig):
    rig.service.submit(rig.call(ECHO))
    await rig.turn()
    rig.node.ready(1)
    await rig.turn()
    rig.node.finish(1)
    newer = msgspec.structs.replace(ECHO, version="0.0.2", revision="2")
    rig.service.deploy(ResolvedAction.own(newer))
    call = rig.call(newer)
    rig.service.submit(call)
    await rig.turn()
    assert rig.node.stopped == [1]
    assert rig.node.started[2].revision == "2"


@run
async def test_a_deleted_action_ends_what_waits_for_it(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    rig.service.remove("guest", "echo")
    await rig.turn()
    assert rig.ended == [call]
    assert b"removed" in call.activation.response


@run
async def test_a_call_for_an_action_the_core_does_not_know_is_refused(rig):
    call = rig.call(msgspec.structs.replace(ECHO, name="other"))
    rig.service.submit(call)
    await rig.turn()
    assert rig.ended == [call]
    assert call.outcome is None
    assert "has no function other" in call.reason


@run
async def test_a_sandbox_that_starts_for_a_cancelled_call_is_started_once_and_serves_the_next(rig):
    first, second = rig.call(ECHO), rig.call(ECHO)
    rig.service.submit(first)
    await rig.turn()
    assert rig.service.cancel("guest", first.id)
    rig.service.submit(second)
    await rig.turn()
    assert rig.node.starts == [1]
    rig.node.ready(1)
    await rig.turn()
    rig.node.finish(1, b'{"x":1}')
    await rig.turn()
    assert rig.ended == [first, second]
    assert second.outcome.result == b'{"x":1}'
    assert summary(second)["start"] == "cold"


@run
async def test_a_cancelled_run_stops_its_sandbox(rig):
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    rig.node.ready(1)
    await rig.turn()
    assert not rig.service.cancel("somebody", call.id)
    assert rig.service.cancel("guest", call.id)
    await rig.turn()
    assert rig.node.stopped == [1]
    assert rig.ended == [call]
    assert b"cancelled" in call.activation.response


@run
async def test_a_namespace_whose_results_wait_for_the_disk_is_refused_alone(rig):
    rig.store.health.behind["guest"] = "The disk falls behind"
    with pytest.raises(RateLimitError, match="falls behind"):
        rig.service.submit(rig.call(ECHO))
    with pytest.raises(RateLimitError, match="falls behind"):
        await rig.service.accept(rig.call(ECHO))
    del rig.store.health.behind["guest"]
    rig.store.health.behind["other"] = "The disk falls behind"
    rig.service.submit(rig.call(ECHO))
    await rig.finish_all()


@run
async def test_draining_lets_what_runs_end_and_leaves_what_waits_on_disk(rig):
    awaited, waits = rig.call(ECHO), rig.call(ECHO)
    rig.service.submit(awaited)
    await rig.service.accept(waits)
    await rig.turn()
    draining = asyncio.create_task(rig.service.drain(60))
    await rig.turn()
    with pytest.raises(OverloadedError, match="stopping"):
        rig.service.submit(rig.call(ECHO))
    rig.node.ready(1)
    await rig.turn()
    rig.node.finish(1)
    await draining
    assert awaited.outcome.status is Status.SUCCESS
    assert [entry.id for entry in await rig.store.unfinished()] == [waits.id]


@run
async def test_rerun_is_written_down_with_the_call(rig):
    again = msgspec.structs.replace(ECHO, annotations=(Pair("rerun", value=True),), revision="2")
    rig.service.deploy(ResolvedAction.own(again))
    await rig.service.accept(rig.call(again))
    assert [entry.rerun for entry in await rig.store.unfinished()] == [2]


@run
async def test_a_wall_clock_that_jumps_changes_no_decision_and_no_duration(rig):
    real = time.time_ns
    for hours in (0, -5, 9):
        call = rig.call(ECHO)
        rig.service.submit(call)
        await rig.turn()
        if not rig.ended:
            rig.node.ready(1)
            await rig.turn()
        with patch("time.time_ns", lambda jump=hours: real() + jump * 3600 * 10**9):
            rig.node.finish(1)
            await rig.turn()
        assert call.outcome.status is Status.SUCCESS
        assert 0 <= call.activation.end - call.activation.start < 60_000
        assert 0 <= call.run.wait_ms < 60_000
    assert [summary(call)["start"] for call in rig.ended] == ["cold", "warm", "warm"]


@run
async def test_followers_that_have_gone_are_forgotten_when_another_comes(rig):
    class Receiver:
        closed = False
        lines = ends = 0

        def printed(self, line):
            self.lines += 1

        def ended(self, call):
            self.ends += 1

    call = rig.call(ECHO)
    rig.service.submit(call)
    stays = Receiver()
    assert rig.service.follow("guest", call.id, stays)
    for _ in range(5000):
        gone = Receiver()
        rig.service.follow("guest", call.id, gone)
        gone.closed = True
    assert len(call.followers) == 2
    call.printed("line")
    await rig.turn()
    rig.node.ready(1)
    await rig.turn()
    rig.node.finish(1)
    await rig.turn()
    assert rig.ended == [call]
    assert (stays.lines, stays.ends) == (1, 1)
