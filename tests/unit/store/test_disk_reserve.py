"""Before the disk is full, large bodies are refused, so that records and the journal still fit."""

import asyncio
import os

import msgspec
import pytest
from msgspec.structs import replace
from small_disks import small_disk
from stored import accepted, activation, journal, opened

from aliquot.core.units import MIB
from aliquot.live.store import ActivationQuery, Document, Retention
from aliquot.live.store.disk_reserve import DiskReserve, DiskReserveError

RESERVE = 4 * MIB


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", "24m") as place:
        yield place


def fill(place, left):
    """Fill the disk with another program's file, up to this many bytes."""
    free = os.statvfs(place)
    (place / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - left))


def test_large_bodies_are_refused_and_small_writes_go_through(disk):
    async def scenario():
        async with opened(disk, reserve_bytes=RESERVE) as store:
            store.open_segment(b"s")
            await store.put("actions", Document("ns", "before", b"x" * MIB))
            fill(disk, RESERVE - 100_000)
            assert store.is_low_on_space
            large = b"x" * 200_000
            for refused in (
                store.put("actions", Document("ns", "a", large)),
                store.accept(replace(accepted(1), payload=large)),
                store.accept_all([replace(accepted(2, event="e"), payload=b"")], activation(3), large),
            ):
                with pytest.raises(DiskReserveError, match="almost full") as caught:
                    await refused
                assert str(disk) in str(caught.value)
                assert "/" not in caught.value.public
            for number in range(10, 200):
                store.record(activation(number))
                store.journal(b"step")
            await store.put("actions", Document("ns", "small", b"x" * 1000))
            await store.accept(accepted(4))
            await store.flush()
            assert store.health.problem is None
            assert len(await journal(store)) == 191
            assert await store.count_activations(ActivationQuery("ns")) == 190
            (disk / "filler").unlink()
            assert not store.is_low_on_space
            await store.put("actions", Document("ns", "a", large))

    asyncio.run(scenario())


@pytest.mark.parametrize("durable", [True, False])
def test_a_large_result_that_cannot_be_kept_leaves_a_record_that_says_so(disk, durable):
    async def scenario():
        async with opened(disk, reserve_bytes=RESERVE) as store:
            fill(disk, RESERVE - 100_000)
            summary = b'{"activationId":"1","statusCode":0,"name":"f"}'
            record = replace(activation(1, response=b"x" * 300_000, pickled=b"y" * 300_000), summary=summary)
            if durable:
                await store.accept(accepted(1))
                await store.finish(record)
                assert await store.unfinished() == []
            else:
                store.record(record)
            found = await store.activation("ns", record.id)
            response = msgspec.json.decode(found.response)
            assert (response["status"], response["success"]) == ("application error", False)
            assert "600048 bytes were not kept" in response["result"]["error"]
            assert msgspec.json.decode(found.summary)["statusCode"] == 1
            assert found.pickled is None

    asyncio.run(scenario())


def test_pruning_makes_space_at_the_cost_of_the_largest_tenant(disk):
    async def scenario():
        async with opened(disk, reserve_bytes=RESERVE) as store:
            store.record(activation(1, owner="small"))
            number = 1
            while not store.is_low_on_space:
                number += 1
                store.record(activation(number, owner="greedy", response=b"x" * 50_000))
                await store.flush()
            with pytest.raises(DiskReserveError):
                await store.put("actions", Document("ns", "a", b"x" * 200_000))
            retention = Retention(activations_min_bytes=0)
            await store.prune(retention, now_ms=None, weights={"small": 1, "greedy": 1})
            assert not store.is_low_on_space
            await store.put("actions", Document("ns", "a", b"x" * 200_000))
            assert await store.count_activations(ActivationQuery("small")) == 1
            assert 0 < await store.count_activations(ActivationQuery("greedy")) < number - 1

    asyncio.run(scenario())


def test_the_reserve_follows_the_size_of_the_disk(disk, tmp_path):
    assert DiskReserve(disk).reserve_bytes == 24 * MIB // 20
    assert DiskReserve(tmp_path).reserve_bytes <= 1024 * MIB
