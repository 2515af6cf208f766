"""The catalogue: writes are durable before they take effect, and survive a restart."""

import asyncio

import pytest
from gateway_client import on_a_loop
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.live.catalogue.catalogue import Catalogue, NameTakenError
from aliquot.live.catalogue.keys import digest_of
from aliquot.live.store.base import StoreError
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import Action, Exec, Quota
from aliquot.testing.platform import FakePlatform
from aliquot.testing.store import MemoryStore
from aliquot.testing.waiting import wait_on_loop, wait_until_async

ACTION = Action("guest", "f", "0.0.1", Exec("python:3.11", "x"))


async def opened(store=None):
    store = store or MemoryStore()
    platform = FakePlatform(store)
    catalogue = Catalogue(store, platform)
    await catalogue.load()
    return catalogue, platform, store


@on_a_loop
async def test_the_catalogue_survives_a_restart():
    catalogue, _, store = await opened()
    key = await catalogue.create_namespace("guest", weight=2, quota=Quota(5, None))
    second = await catalogue.add_key("guest", revoke_others=False)
    async with catalogue.writing("guest"):
        action = await catalogue.put(ACTION)
    brief = catalogue.ephemeral_keys.issue("guest")
    again, platform, _ = await opened(store)
    assert again.namespaces() == catalogue.namespaces()
    assert again.entities.one(Action, "guest", "f") == action == platform.deployed["guest", "f"]
    assert platform.weights == {"guest": 2}
    for text in (key, second):
        uuid, _, secret = text.partition(":")
        assert again.key(uuid) == ("guest", digest_of(secret))
    assert again.key(brief.partition(":")[0]) is None


@on_a_loop
async def test_no_secret_is_stored():
    catalogue, _, store = await opened()
    secrets = [await catalogue.create_namespace("guest"), await catalogue.add_key("guest", revoke_others=False)]
    stored = b"".join(document.body for document in await store.scan("namespaces")).decode()
    for key in secrets:
        uuid, _, secret = key.partition(":")
        assert uuid in stored
        assert secret not in stored


@on_a_loop
async def test_every_write_has_a_revision_of_its_own():
    catalogue, _, _ = await opened()
    await catalogue.create_namespace("guest")
    async with catalogue.writing("guest"):
        first = await catalogue.put(ACTION)
        second = await catalogue.put(ACTION)
        await catalogue.delete(ACTION)
        third = await catalogue.put(ACTION)
    assert len({first.revision, second.revision, third.revision}) == 3


@on_a_loop
async def test_a_write_that_the_store_refuses_has_no_effect():
    catalogue, platform, store = await opened()
    await catalogue.create_namespace("guest")
    async with catalogue.writing("guest"):
        action = await catalogue.put(ACTION)
    before = catalogue.namespaces()
    generation = catalogue.generation
    store.fail("the disk is full")
    with pytest.raises(StoreError):
        await catalogue.create_namespace("other")
    with pytest.raises(StoreError):
        await catalogue.add_key("guest", revoke_others=True)
    with pytest.raises(StoreError):
        await catalogue.update_namespace("guest", lambda old: replace(old, weight=3.0))
    with pytest.raises(StoreError):
        await catalogue.delete_namespace("guest")
    for write in (catalogue.put(ACTION), catalogue.delete(ACTION)):
        async with catalogue.writing("guest"):
            with pytest.raises(StoreError):
                await write
    assert catalogue.namespaces() == before
    assert catalogue.entities.one(Action, "guest", "f") == action == platform.deployed["guest", "f"]
    assert catalogue.generation == generation
    store.fail(None)
    await catalogue.create_namespace("other")


@on_a_loop
async def test_names_are_checked_and_unique():
    catalogue, _, _ = await opened()
    await catalogue.create_namespace("guest")
    with pytest.raises(NameTakenError, match="guest"):
        await catalogue.create_namespace("guest")
    for name in ("", "_", "a/b", "..", "é", "a\n", "x" * 257):
        with pytest.raises(InputError, match=r"^name: "):
            await catalogue.create_namespace(name)
    for wrong in (float("nan"), float("inf"), 0, -1):
        with pytest.raises(InputError, match=r"^weight: "):
            await catalogue.create_namespace("w", weight=wrong)


@on_a_loop
async def test_one_of_two_concurrent_creations_of_a_name_succeeds():
    catalogue, _, _ = await opened()
    answers = await asyncio.gather(*(catalogue.create_namespace("guest") for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(answer, NameTakenError) for answer in answers) == 4


@on_a_loop
async def test_a_missing_entity_raises_not_found():
    catalogue, _, _ = await opened()
    with pytest.raises(NotFoundError):
        await catalogue.delete_namespace("guest")
    with pytest.raises(NotFoundError):
        await catalogue.add_key("guest", revoke_others=True)
    await catalogue.create_namespace("guest")
    with pytest.raises(NotFoundError):
        await catalogue.remove_key("guest", "x")


@on_a_loop
async def test_a_writer_that_is_cancelled_leaves_store_and_memory_the_same():
    class Slow(MemoryStore):
        def __init__(self):
            super().__init__()
            self.gate = asyncio.Event()

        async def apply(self, changes):
            await super().apply(changes)
            await self.gate.wait()

    store = Slow()
    catalogue, _, _ = await opened(store)
    writing = asyncio.create_task(catalogue.create_namespace("guest"))
    await wait_until_async(lambda: store.scan("namespaces"), what="the namespace in the store", pause_s=0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    store.gate.set()
    await wait_on_loop(lambda: catalogue.namespace("guest"), what="the namespace in the catalogue")


@on_a_loop
async def test_an_action_that_can_no_longer_run_does_not_prevent_the_start():
    catalogue, _, store = await opened()
    await catalogue.create_namespace("guest")
    async with catalogue.writing("guest"):
        for name in ("a", "b"):
            await catalogue.put(replace(ACTION, name=name))

    class Picky(FakePlatform):
        def deploy(self, resolved):
            if resolved.function == "a":
                raise InputError("annotation gpu-share: no")
            super().deploy(resolved)

    platform = Picky(store)
    again = Catalogue(store, platform)
    await again.load()
    assert list(platform.deployed) == [("guest", "b")]
    assert again.entities.any("guest", "a") is not None
