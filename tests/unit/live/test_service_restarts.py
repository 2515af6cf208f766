"""The service after a restart: calls that an earlier server accepted, and starts that it counted."""

import asyncio

import msgspec
from rig import Rig

from aliquot.live.catalogue.catalogue import NAMESPACES
from aliquot.live.invocations.recovery import INTERRUPTED, MAX_INTERRUPTED_STARTS, NEVER_STARTED, recover_calls
from aliquot.live.store.base import Document
from aliquot.live.store.records import Accepted, Action, Exec, Namespace
from aliquot.live.store.sqlite import SqliteStore

ECHO = Action("guest", "echo", "0.0.1", Exec("python:3.11", "def main(args): return args"), revision="1")
GUEST = Namespace("guest")


def test_what_an_earlier_server_accepted_reaches_its_end(tmp_path):
    def accepted(number, **more):
        return Accepted(f"{number:032x}", "guest", more.pop("name", "echo"), number, b"{}", **more)

    async def crash():
        store = await SqliteStore.open(tmp_path)
        await store.put(NAMESPACES, Document("guest", "guest", msgspec.json.encode(GUEST)))
        for entry in (
            accepted(101),
            accepted(102, started=True),
            accepted(103, started=True, rerun=True),
            accepted(104, name="gone"),
            accepted(105, started=2, rerun=2),
            accepted(106, started=3, rerun=2),
        ):
            await store.accept(entry)
        await store.close()

    async def restart():
        async with Rig.open(tmp_path, deployed=(ECHO,)) as rig:
            rig.catalogue.install(ECHO)
            assert await recover_calls(rig.composer, rig.store, rig.catalogue) == 6
            await rig.turn()
            ends = {}
            for number in (102, 104, 106):
                record = await rig.store.activation("guest", f"{number:032x}")
                ends[number] = msgspec.json.decode(record.response)
            assert ends[102]["status"] == "whisk internal error"
            assert ends[102]["result"] == {"error": INTERRUPTED}
            assert ends[106]["result"] == {"error": INTERRUPTED}
            assert "deleted" in ends[104]["result"]["error"]
            assert sorted(rig.service.calls) == [f"{number:032x}" for number in (101, 103, 105)]
            await rig.finish_all()
            assert await rig.store.unfinished() == []

    asyncio.run(crash())
    asyncio.run(restart())


def test_a_call_whose_start_ends_the_server_again_and_again_is_ended(tmp_path):
    """A server that is killed leaves no trace but the count, so the rigs here do not drain."""

    async def live_once(first):
        async with Rig.open(tmp_path, catalogued=(ECHO,)) as rig:
            if first:
                await rig.service.accept(rig.call("echo", durable=True))
            else:
                await recover_calls(rig.composer, rig.store, rig.catalogue)
            await rig.turn()
            await rig.store.flush()
            counts = [one.starts for one in await rig.store.unfinished()]
            return rig.node.starts, counts

    for life in range(MAX_INTERRUPTED_STARTS):
        assert asyncio.run(live_once(first=not life)) == ([1], [life + 1])
    assert asyncio.run(live_once(first=False)) == ([], []), "it is not tried again"

    async def response():
        async with Rig.open(tmp_path) as rig:
            return await rig.record(f"{1:032x}")

    assert asyncio.run(response())["result"]["error"] == NEVER_STARTED.format(MAX_INTERRUPTED_STARTS)


def test_a_server_that_stops_in_order_counts_no_start(tmp_path):
    async def live_once():
        async with Rig.open(tmp_path, catalogued=(ECHO,)) as rig:
            await recover_calls(rig.composer, rig.store, rig.catalogue)
            if not rig.service.calls:
                await rig.service.accept(rig.call("echo", durable=True))
            await rig.turn()
            assert rig.node.starts == [1]
            await rig.service.drain(1)
            await rig.store.flush()
            return [one.starts for one in await rig.store.unfinished()]

    for _ in range(MAX_INTERRUPTED_STARTS + 1):
        assert asyncio.run(live_once()) == [0]
