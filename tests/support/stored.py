"""Records to put into a store, and reads of what a store holds."""

from contextlib import asynccontextmanager

from aliquot.live.store import ActivationQuery, SqliteStore
from aliquot.live.store.records import Accepted, Activation


def activation(number, *, owner="ns", name="f", start=None, response=b'{"result":{}}', **rest):
    start = number if start is None else start
    return Activation(f"{number:032x}", owner, name, start, start + 1, b"{}", response, b"[]", **rest)


def accepted(number, **rest):
    return Accepted(f"{number:032x}", "ns", "f", number, b"{}", **rest)


async def starts(store, **query):
    return [found.start for found in await store.activations(ActivationQuery("ns", **query))]


async def journal(store):
    return [(entry.segment, entry.number, entry.body) async for entry in store.read_journal()]


@asynccontextmanager
async def opened(path, **options):
    store = await SqliteStore.open(path, **options)
    try:
        yield store
    finally:
        await store.close()
