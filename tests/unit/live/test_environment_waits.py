"""Calls of functions whose environment is not built wait outside of the scheduler. A node that does as it is told."""

import pytest
from rig import on_a_rig

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.deployments import REMOVED
from aliquot.live.invocations.recovery import recover_calls
from aliquot.live.node.base import Status
from aliquot.live.store.records import SEQUENCE, Action, Exec, FullName, Pair
from aliquot.testing.waiting import wait_on_loop

CODE = Exec("python:3.11", "def main(args): return args")
TINY, OTHER = ("tiny",), ("other",)


def action(name, requirements, revision="1", **more):
    pairs = [Pair("requirements", value=list(requirements))] if requirements else []
    return Action("guest", name, "0.0.1", CODE, annotations=(*pairs, *more.pop("annotations", ())), revision=revision)


NEEDY = action("needy", TINY)
PLAIN = action("plain", ())
PAIR = Action(
    "guest", "pair", "0.0.1", Exec(SEQUENCE, components=(FullName("guest", "plain"), FullName("guest", "needy")))
)

run = on_a_rig(deployed=(NEEDY, PLAIN))


async def waiting(rig, **settings):
    """Submit a call whose environment is missing."""
    rig.node.unbuilt.add(TINY)
    call = rig.call(NEEDY, **settings)
    rig.service.submit(call)
    await rig.turn()
    assert rig.node.starts == []
    assert rig.service.scheduler.invocations == {}, "the scheduler does not know it"
    return call


@run
async def test_a_call_waits_for_its_environment_without_a_slot_and_then_runs(rig):
    calls = [await waiting(rig) for _ in range(8)]
    assert [requirements for requirements, _ in rig.node.builds] == [TINY], "one build for all of them"
    other = rig.call(PLAIN)
    rig.service.submit(other)
    await rig.finish()
    assert rig.ended == [other], "the four slots are free for others"
    rig.node.end_builds()
    await rig.finish_all()
    assert set(rig.ended) == {other, *calls}
    assert all(call.outcome.status is Status.SUCCESS for call in calls)


@run
async def test_a_build_that_fails_ends_the_calls_with_the_installers_words(rig):
    call = await waiting(rig)
    rig.node.end_builds("ERROR: No matching distribution found for tiny")
    await rig.turn()
    assert rig.ended == [call]
    assert call.outcome.status is Status.DEVELOPER_ERROR
    assert b"No matching distribution found for tiny" in call.activation.response


@run
async def test_a_waiting_call_can_be_cancelled(rig):
    call, other = await waiting(rig), await waiting(rig)
    assert rig.service.cancel("guest", call.id)
    await rig.turn()
    assert rig.ended == [call]
    assert b"cancelled" in call.activation.response
    rig.node.end_builds()
    await rig.finish_all()
    assert rig.ended == [call, other]


@run
async def test_a_function_that_is_removed_ends_the_calls_that_wait(rig):
    call = await waiting(rig)
    rig.service.remove("guest", "needy")
    await rig.turn()
    assert rig.ended == [call]
    assert REMOVED.encode() in call.activation.response
    rig.node.end_builds()
    await rig.turn()
    assert rig.node.starts == []


@pytest.mark.parametrize("requirements", [(), OTHER], ids=["none", "others"])
def test_a_new_revision_decides_what_a_call_waits_for(tmp_path, requirements):
    @on_a_rig(deployed=(NEEDY,))
    async def scene(rig):
        rig.node.unbuilt.add(OTHER)
        call = await waiting(rig)
        rig.service.deploy(ResolvedAction.own(action("needy", requirements, "2")))
        await rig.turn()
        assert rig.ended == []
        if requirements:
            assert rig.node.starts == []
            assert [one for one, _ in rig.node.builds] == [TINY, OTHER]
            rig.node.end_builds()
        await rig.finish_all()
        assert rig.ended == [call]
        assert call.outcome.status is Status.SUCCESS

    scene(tmp_path)


@run
async def test_a_function_that_joins_a_group_waits_for_the_environment_of_the_group(rig):
    call = await waiting(rig)
    group = (Pair("group", value="team"),)
    both = (*TINY, *OTHER)
    rig.node.unbuilt |= {both, (*OTHER, *TINY)}
    rig.service.deploy(ResolvedAction.own(action("second", OTHER, annotations=group)))
    rig.service.deploy(ResolvedAction.own(action("needy", TINY, "2", annotations=group)))
    await rig.turn()
    assert rig.node.starts == []
    assert rig.node.builds[-1][0] == (*OTHER, *TINY)
    rig.node.end_builds()
    await rig.finish_all()
    assert rig.ended == [call]
    assert call.outcome.status is Status.SUCCESS
    assert rig.node.started[1].function == "group:team"


@run
async def test_an_environment_that_is_removed_before_the_start_is_built_again_outside_of_the_slot(rig):
    call = rig.call(NEEDY)
    rig.service.submit(call)
    await rig.turn()
    assert rig.node.starts == [1]
    rig.node.unbuilt.add(TINY)
    rig.node.refuse(1)
    await rig.turn()
    assert rig.service.scheduler.invocations == {}
    rig.node.end_builds()
    await rig.turn()
    assert rig.node.starts == [1, 2]
    rig.node.ready(2)
    await rig.turn()
    rig.node.finish(2)
    await rig.turn()
    assert rig.ended == [call]
    assert call.outcome.status is Status.SUCCESS


def test_a_component_waits_and_a_failed_build_ends_the_sequence(tmp_path):
    @on_a_rig(catalogued=(NEEDY, PLAIN, PAIR))
    async def scene(rig):
        rig.node.unbuilt.add(TINY)
        first, second = rig.call("pair"), rig.call("pair")
        rig.composer.submit(first)
        await rig.finish()
        await rig.turn()
        assert rig.service.scheduler.invocations == {}
        rig.node.end_builds()
        await rig.finish()
        await rig.until_ended(first)
        assert first.outcome.status is Status.SUCCESS
        rig.node.unbuilt.add(TINY)
        rig.composer.submit(second)
        await rig.finish()
        await rig.turn()
        rig.node.end_builds("no such package")
        await rig.until_ended(second)
        assert b"no such package" in second.outcome.result

    scene(tmp_path)


def test_an_accepted_call_that_waits_when_the_server_stops_is_kept_and_waits_again(tmp_path):
    @on_a_rig(catalogued=(NEEDY,))
    async def stopping(rig):
        rig.node.unbuilt.add(TINY)
        call = rig.call("needy", durable=True)
        await rig.service.accept(call)
        await rig.turn()
        assert await rig.queue() == [("needy", False)]
        await rig.service.drain(1)
        assert call.parked
        assert await rig.queue() == [("needy", False)]

    @on_a_rig()
    async def restarted(rig):
        rig.node.unbuilt.add(TINY)
        assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 1
        await rig.turn()
        assert rig.service.scheduler.invocations == {}
        assert [one for one, _ in rig.node.builds] == [TINY]
        rig.node.end_builds("no such package")
        await wait_on_loop(lambda: rig.service.calls, lambda calls: not calls, what="the end of the call")
        assert await rig.queue() == [], "the failed build has ended it for good"

    stopping(tmp_path)
    restarted(tmp_path)
