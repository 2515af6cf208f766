"""After a start only functions are prepared that succeeded a short while ago."""

import asyncio

from msgspec.structs import replace
from stored import activation

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.invocations.recent_functions import MAX_AGE_MS, prepare_recent
from aliquot.live.store.records import Action, Exec
from aliquot.live.store.sqlite import SqliteStore
from aliquot.testing.platform import START_MS, FakePlatform


class Host(FakePlatform):
    def __init__(self, store):
        super().__init__(store)
        self.prepared = []

    def prepare(self, resolved):
        self.prepared.append((resolved.tenant, resolved.function))


async def restart(path):
    """Fill a store, read it with a new catalogue, and return the host and the store."""
    store = await SqliteStore.open(path)
    catalogue = Catalogue(store, Host(store))
    for namespace in ("one", "two"):
        await catalogue.create_namespace(namespace)
        async with catalogue.writing(namespace):
            for name in ("called", "failed", "old", "never"):
                await catalogue.put(Action(namespace, name, "0.0.1", Exec("python:3.11", "")))
    failure = b'{"statusCode":2}'
    records = [("called", 1, failure), ("called", 0, b"{}"), ("old", 2 * MAX_AGE_MS, b"{}")]
    records += [("failed", 1, b"{}"), ("failed", 0, failure)]  # it worked before it was replaced
    for number, (name, age_ms, summary) in enumerate(records):
        one = activation(number, owner=catalogue.namespace("two").owner, name=name, start=START_MS - age_ms)
        store.record(replace(one, summary=summary))
    await store.flush()
    host = Host(store)
    again = Catalogue(store, host)
    await again.load()
    return host, store, again


def test_loading_prepares_nothing_and_then_only_what_succeeded_lately(tmp_path):
    async def scene():
        host, store, catalogue = await restart(tmp_path / "db")
        try:
            assert len(host.deployed) == 8
            assert host.prepared == []
            assert await prepare_recent(host, store, catalogue, now_ms=START_MS) == 1
            assert host.prepared == [("two", "called")]
        finally:
            await store.close()

    asyncio.run(scene())


def test_a_new_revision_is_prepared(tmp_path):
    async def scene():
        host, store, catalogue = await restart(tmp_path / "db")
        try:
            async with catalogue.writing("one"):
                await catalogue.put(Action("one", "never", "0.0.2", Exec("python:3.11", "")))
            assert host.prepared == [("one", "never")]
        finally:
            await store.close()

    asyncio.run(scene())
