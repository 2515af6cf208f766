"""Blobs are removed a day after their upload, unless an object or a kernel graph names them."""

import asyncio
import time

import pytest

from aliquot.live.objects.registry import UNNAMED_KEPT_S, ObjectRecord, ObjectRegistry, StorageFullError
from aliquot.testing.store import MemoryStore

LATER_S = UNNAMED_KEPT_S + 60


async def store(objects, data, namespace="ann"):
    file = objects.files.receive()
    objects.take_room(namespace, file, len(data))
    file.write(data)
    digest = file.finish()
    await objects.keep_blob(namespace, file, digest)
    objects.give_room_back(namespace, file)
    return digest


async def open_objects(tmp_path):
    made = ObjectRegistry(MemoryStore(), tmp_path / "objects", object_bytes=100, namespace_bytes=150)
    await made.load()
    return made


def test_a_blob_stays_while_something_names_it_and_for_a_day(tmp_path):
    async def scenario():
        objects = await open_objects(tmp_path)
        by_object, by_graph, unnamed = [await store(objects, data) for data in (b"object", b"graph", b"nothing")]
        await objects.put("ann", ObjectRecord("key", by_object, 6, 0))
        assert objects.sweep("ann", [by_graph], now_s=time.time()) == 0
        assert objects.sweep("ann", [by_graph], now_s=time.time() + LATER_S) == 1
        assert objects.blob_size("ann", unnamed) is None
        assert not objects.files.path("ann", unnamed).exists()
        await objects.delete("ann", "key")
        assert objects.sweep("ann", [by_graph], now_s=time.time() + LATER_S) == 1
        assert objects.blob_size("ann", by_graph) == 5

    asyncio.run(scenario())


def test_files_that_are_being_received_count_too(tmp_path):
    async def scenario():
        objects = await open_objects(tmp_path)
        await store(objects, b"x" * 100)
        first, second = objects.files.receive(), objects.files.receive()
        objects.take_room("ann", first, 40)
        with pytest.raises(StorageFullError, match="at most 150 bytes"):
            objects.take_room("ann", second, 20)
        objects.take_room("bob", second, 20)
        for file in (first, second):
            file.discard()

    asyncio.run(scenario())


def test_the_files_of_a_deleted_namespace_are_gone(tmp_path):
    async def scenario():
        objects = await open_objects(tmp_path)
        digest = await store(objects, b"x")
        await objects.put("ann", ObjectRecord("key", digest, 1, 0))
        assert len(objects.deletions("ann")) == 1
        objects.forget("ann")
        assert (objects.find("ann", "key"), objects.used_bytes("ann")) == (None, 0)
        assert not objects.files.path("ann", digest).exists()

    asyncio.run(scenario())
