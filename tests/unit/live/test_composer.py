"""The composer between gateway, service and store: what happens at the edges, with a node that does as it is told."""

import asyncio
from random import Random
from unittest.mock import patch

import msgspec
import pytest
from rig import Rig, on_a_rig

from aliquot.live.invocations.errors import OverloadedError
from aliquot.live.invocations.recovery import INTERRUPTED, recover_calls
from aliquot.live.node.base import Status
from aliquot.live.store.base import StoreError
from aliquot.live.store.records import SEQUENCE, Action, Exec, FullName, Limits, Pair

CODE = Exec("python:3.11", "def main(args): return args")


def sequence(*names, **more):
    return Exec(SEQUENCE, components=tuple(FullName("guest", name) for name in names), **more)


ACTIONS = (
    Action("guest", "a", "0.0.1", CODE, Limits(memory=128)),
    Action("guest", "b", "0.0.1", CODE),
    Action("guest", "pair", "0.0.1", sequence("a", "b")),
    Action("guest", "nest", "0.0.1", sequence("pair", "b")),
    Action("guest", "again", "0.0.1", sequence("a", "b"), annotations=(Pair("rerun", value=True),)),
    Action("guest", "lead", "0.0.1", CODE, annotations=(Pair("conductor", value=True),)),
)


run = on_a_rig(catalogued=ACTIONS)


@run
async def test_components_follow_one_another_without_a_turn_between(rig):
    call = rig.call("pair")
    rig.composer.submit(call)
    await rig.finish(b'{"n":1}')
    (component,) = [one for one in rig.service.calls.values() if one is not call]
    assert (component.function, component.payload, component.cause) == ("b", b'{"n":1}', call.id)
    await rig.finish(b'{"n":2}')
    assert rig.ended == [call]
    assert call.outcome.result == b'{"n":2}'
    assert rig.service.calls == {}


@run
async def test_an_accepted_composition_is_marked_as_begun_by_its_first_component_and_ended_by_its_record(rig):
    call = rig.call("pair")
    await rig.composer.accept(call)
    assert await rig.queue() == [("pair", False)]
    await rig.running()
    assert await rig.queue() == [("pair", True)]
    with patch.object(rig.store, "mark_started", side_effect=AssertionError("once is enough")):
        await rig.finish()
        await rig.finish()
        await rig.until_ended(call)
    assert await rig.queue() == []
    assert (await rig.record(call.id))["success"]


@run
async def test_a_composition_that_is_detached_before_it_began_is_marked_when_it_begins(rig):
    call = rig.call("pair")
    rig.composer.submit(call)
    await rig.turn()
    await rig.composer.detach(call)
    assert await rig.queue() == [("pair", False)]
    await rig.running()
    assert await rig.queue() == [("pair", True)]
    await rig.finish()
    await rig.finish()
    await rig.until_ended(call)
    assert await rig.queue() == []


@run
async def test_a_composition_that_is_detached_under_way_is_marked_at_once(rig):
    for number, before in ((1, 0), (2, 1)):
        call = rig.call("pair", number)
        rig.composer.submit(call)
        for _ in range(before):
            await rig.finish()
        await rig.running()
        await rig.composer.detach(call)
        assert await rig.queue() == [("pair", True)]
        for _ in range(2 - before):
            await rig.finish()
        await rig.until_ended(call)
        assert await rig.queue() == []


@run
async def test_a_store_that_fails_refuses_a_composition_and_nothing_of_it_runs(rig):
    call = rig.call("pair")
    with (
        patch.object(rig.store, "accept", side_effect=StoreError("full", "full")),
        pytest.raises(OverloadedError, match="full"),
    ):
        await rig.composer.accept(call)
    assert rig.service.calls == {}


@run
async def test_one_that_waits_when_the_server_stops_stays_on_disk_and_one_that_runs_ends(rig):
    begun = rig.call("pair", 1)
    await rig.composer.accept(begun)
    sandbox = await rig.running()
    waiting = rig.call("again", 2)
    await rig.composer.accept(waiting)  # its first component needs a sandbox that does not start
    await rig.turn()
    draining = asyncio.create_task(rig.service.drain(60))
    await rig.until_ended(waiting)
    assert waiting.parked
    assert waiting.activation is None
    with pytest.raises(OverloadedError):
        rig.composer.submit(rig.call("pair", 3))
    rig.node.finish(sandbox)
    await rig.turn()
    await rig.finish()
    await draining
    assert (await rig.record(begun.id))["success"]
    assert await rig.queue() == [("again", False)]


@run
async def test_cancelling_a_nested_one_ends_what_is_around_it_as_an_error_does(rig):
    call = rig.call("nest")
    rig.composer.submit(call)
    await rig.running()
    (component,) = [one for one in rig.service.calls.values() if one is not call]
    assert not rig.composer.cancel("somebody", component.cause)
    assert rig.composer.cancel("guest", component.cause)
    await rig.until_ended(call)
    assert call.outcome.status is Status.INTERNAL_ERROR
    assert call.outcome.result == b'{"error":"cancelled"}'
    assert (await rig.record(component.cause))["result"] == {"error": "cancelled"}
    assert not rig.composer.cancel("guest", call.id)


@run
async def test_a_component_whose_sandbox_dies_ends_it(rig):
    call = rig.call("pair")
    rig.composer.submit(call)
    rig.node.lose(await rig.running(), "it is out of memory")
    await rig.until_ended(call)
    assert call.outcome.status is Status.DEVELOPER_ERROR
    assert call.outcome.result == b'{"error":"it is out of memory"}'


@run
async def test_a_component_whose_sandbox_has_not_begun_it_is_tried_again(rig):
    call = rig.call("pair")
    rig.composer.submit(call)
    rig.node.refuse(await rig.running())
    await rig.finish()
    await rig.finish(b'{"fine":1}')
    await rig.until_ended(call)
    assert call.outcome.result == b'{"fine":1}'


@run
async def test_a_component_that_the_core_does_not_take_is_the_platforms_fault(rig):
    call = rig.call("pair")
    rig.composer.submit(call)
    rig.service.remove("guest", "a")
    await rig.until_ended(call)
    assert call.outcome.status is Status.INTERNAL_ERROR


@run
async def test_whatever_is_wrong_with_a_composition_it_ends(rig):
    call = rig.call("pair")
    rig.composer.submit(call)
    with patch(
        "aliquot.live.invocations.sequences.frames.SequenceFrame.follow", side_effect=RuntimeError("a fault of ours")
    ):
        await rig.finish()
    await rig.until_ended(call)
    assert call.outcome.status is Status.INTERNAL_ERROR
    assert b"a fault of ours" in call.outcome.result
    assert (await rig.record(call.id))["status"] == "whisk internal error"


@run
async def test_a_conductor_that_answers_nonsense_in_kind_ends_as_it_answers(rig):
    call = rig.call("lead")
    rig.composer.submit(call)
    await rig.finish(b'{"action":"a","params":{"x":1},"state":"s"}')
    assert rig.node.running[await rig.running()].payload == b'{"x":1}'
    await rig.finish(b"[1]")
    assert msgspec.json.decode(rig.node.running[await rig.running()].payload) == {"value": [1], "state": "s"}
    await rig.finish(b"[2]")
    await rig.until_ended(call)
    assert call.outcome.result == b"[2]"


@run
async def test_who_follows_a_composition_hears_its_components(rig):
    heard = []

    class Ear:
        def printed(self, line):
            heard.append(line)

        def ended(self, call):
            heard.append(call.id)

    call = rig.call("pair")
    rig.composer.submit(call)
    await rig.running()
    assert rig.composer.follow("guest", call.id, Ear())
    (component,) = [one for one in rig.service.calls.values() if one is not call]
    component.printed("hello")
    await rig.finish()
    await rig.finish()
    assert heard == ["hello", call.id]
    assert rig.ended == [call]


def test_after_a_crash_what_had_begun_is_interrupted_and_the_rest_runs(tmp_path):
    async def before():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            for number, name in enumerate(["pair", "again"], 1):
                await rig.composer.accept(rig.call(name, number))
                await rig.finish()  # the first component has run, the second waits for its own turn
                await rig.running()
                rig.node.running.clear()
            await rig.composer.accept(rig.call("lead", 3))  # whose sandbox is not ready
            assert await rig.queue() == [("pair", True), ("again", True), ("lead", False)]
            rig.service.calls.clear()  # nobody brings them to an end

    async def after():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 3
            interrupted = await rig.store.activation("guest", f"{1:032x}")
            assert msgspec.json.decode(interrupted.response)["result"] == {"error": INTERRUPTED}
            told = {pair["key"]: pair["value"] for pair in msgspec.json.decode(interrupted.summary)["annotations"]}
            assert (told["kind"], told["topmost"]) == ("sequence", True)
            await rig.finish_all()
            assert await rig.queue() == []
            assert (await rig.record(f"{2:032x}"))["success"]
            assert (await rig.record(f"{3:032x}"))["success"]

    asyncio.run(before())
    asyncio.run(after())


RESULTS = [b"{}", b"[1]", b'{"action":"pair"}', b'{"action":"lead","state":1}', b'{"action":"nothing"}']


class BadDay:
    """Things happen to compositions, in the order that chance gives them."""

    def __init__(self, rig, random):
        self.rig = rig
        self.random = random
        self.calls = []

    async def act(self):
        await self.random.choices([self.call, self.finish, self.lose, self.cancel, self.detach, self.start], WEIGHTS)[
            0
        ]()
        await asyncio.sleep(0.001 if self.random.random() < 0.3 else 0)

    async def call(self):
        call = self.rig.call(self.random.choice(["pair", "nest", "again", "lead", "a"]), len(self.calls) + 1)
        self.calls.append(call)
        if self.random.random() < 0.5:
            self.rig.composer.submit(call)
        else:
            await self.rig.composer.accept(call)

    async def finish(self):
        for sandbox in self.one_of(sorted(self.rig.node.running)):
            self.rig.node.finish(sandbox, self.random.choice(RESULTS))

    async def lose(self):
        for sandbox in self.one_of(sorted(self.rig.node.running)):
            getattr(self.rig.node, self.random.choice(["lose", "refuse"]))(sandbox)

    async def cancel(self):
        for call in self.one_of([call for call in self.calls if call not in self.rig.ended]):
            self.rig.composer.cancel("guest", call.id)

    async def detach(self):
        for call in self.one_of([call for call in self.calls if call not in self.rig.ended]):
            await self.rig.composer.detach(call)

    async def start(self):
        self.rig.make_ready()

    def one_of(self, things):
        return self.random.sample(things, min(1, len(things)))


WEIGHTS = [15, 45, 10, 5, 5, 20]  # of what `BadDay.act` chooses from


@pytest.mark.parametrize("seed", range(3))
def test_on_a_bad_day_every_composition_still_ends_once_with_one_record(tmp_path, seed):
    async def whole():
        async with Rig.open(tmp_path, catalogued=ACTIONS) as rig:
            day = BadDay(rig, Random(seed))
            while len(day.calls) < 60:
                await day.act()
            await rig.finish_all()
            assert sorted(call.id for call in rig.ended) == [call.id for call in day.calls]
            assert all([await rig.record(call.id) for call in day.calls])
            assert await rig.queue() == []

    asyncio.run(whole())
