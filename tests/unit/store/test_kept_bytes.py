"""The bytes that are kept for a namespace have a limit, and a refusal names both."""

import asyncio

import pytest
from msgspec.structs import replace
from stored import accepted, activation, opened

from aliquot.live.store import ActivationQuery, Document, Put, Retention
from aliquot.live.store.kept_bytes import QuotaError

MB = 2**20


def document(name, size, namespace="ns"):
    return Document(namespace, name, b"x" * size)


def test_code_beyond_the_limit_is_refused_with_usage_and_limit(tmp_path):
    async def scenario():
        async with opened(tmp_path, max_kept_bytes=3 * MB) as store:
            await store.put("actions", document("a", MB))
            await store.put("packages", document("b", MB))
            text = r"keeps 2\.0 MiB of at most 3\.0 MiB .*: 2\.0 MiB more do not fit.*kept_bytes"
            with pytest.raises(QuotaError, match=text) as caught:
                await store.put("actions", document("c", 2 * MB))
            assert caught.value.public == str(caught.value)
            await store.put("actions", document("other", 3 * MB, "neighbour"))
            await store.put("actions", document("a", MB // 2))  # it shrinks
            await store.delete("packages", "ns", "b")
            await store.put("actions", document("c", 2 * MB))
        async with opened(tmp_path, max_kept_bytes=3 * MB) as store:  # a restart counts the same
            with pytest.raises(QuotaError, match=r"keeps 2\.5 MiB"):
                await store.put("actions", document("d", MB))
            store.limit_kept_bytes("ns", 4 * MB)
            await store.put("actions", document("d", MB))
            # The operator must be able to raise the limit, and a tenant to replace what it has by less.
            store.limit_kept_bytes("ns", 0)
            await store.put("namespaces", document("ns", 1000))
            await store.put("actions", document("a", MB // 4))

    asyncio.run(scenario())


def test_changes_that_are_made_together_are_counted_together(tmp_path):
    async def scenario():
        async with opened(tmp_path, max_kept_bytes=MB) as store:
            with pytest.raises(QuotaError):
                await store.apply([Put("actions", document(name, MB * 2 // 3)) for name in "ab"])
            assert await store.scan("actions") == []

    asyncio.run(scenario())


def test_queued_bodies_count_until_their_calls_have_ended(tmp_path):
    async def scenario():
        body = b"x" * (MB * 2 // 3)
        async with opened(tmp_path, max_kept_bytes=MB) as store:
            await store.accept(replace(accepted(1), payload=memoryview(bytearray(body))))
            with pytest.raises(QuotaError):
                await store.accept(replace(accepted(2), payload=body))
        async with opened(tmp_path, max_kept_bytes=MB) as store:
            with pytest.raises(QuotaError):
                await store.put("actions", document("a", MB // 2))
            await store.finish(activation(1))
            event = activation(9)
            calls = [replace(accepted(number, event=event.id), payload=b"") for number in (3, 4)]
            await store.accept_all(calls, event, body)
        async with opened(tmp_path, max_kept_bytes=MB) as store:
            with pytest.raises(QuotaError, match=r"keeps 0\.7 MiB"):  # the event counts once
                await store.accept(replace(accepted(5), payload=body))
            assert len(await store.unfinished()) == 2

    asyncio.run(scenario())


def test_records_get_what_entities_and_queued_calls_leave(tmp_path):
    async def scenario():
        async with opened(tmp_path, max_kept_bytes=2 * MB) as store:
            await store.put("actions", document("a", MB))
            for number in range(2000):
                store.record(activation(number, response=b"x" * 996))
            await store.prune(Retention(activations_min_bytes=0), now_ms=0, weights={"ns": 1})
            assert await store.count_activations(ActivationQuery("ns")) == MB // 1000

    asyncio.run(scenario())
