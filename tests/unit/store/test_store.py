"""The guarantees of `Store`, checked for the store in SQLite and the one in memory."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from stored import accepted, activation, journal, starts

from aliquot.live.store import ActivationQuery, Delete, Document, Put, Retention, SqliteStore, StoreError
from aliquot.testing.store import MemoryStore


@pytest.fixture(params=["sqlite", "memory"])
def opened(request, tmp_path):
    """Return a function for `async with opened() as store`. The second store has the data of the first."""
    memory = MemoryStore()

    @asynccontextmanager
    async def open_store():
        store = await SqliteStore.open(tmp_path) if request.param == "sqlite" else memory
        try:
            yield store
        finally:
            await store.close()

    return open_store


@pytest.fixture
def run(opened):
    def run(scenario):
        async def go():
            async with opened() as store:
                return await scenario(store)

        return asyncio.run(go())

    return run


def test_large_bodies_are_kept_whole_and_left_out_of_lists(opened):
    large = memoryview(bytes(range(256)) * 40_000)  # more than two pieces
    record = activation(1, response=b'{"size":1,"result":', large=large, pickled=large)

    async def go():
        async with opened() as store:
            await store.accept(replace(accepted(1), payload=large))
            await store.accept(accepted(2))
        async with opened() as store:
            assert [bytes(one.payload) for one in await store.unfinished()] == [b"", b"{}"]
            assert [bytes(await store.payload(one.id)) for one in await store.unfinished()] == [bytes(large), b"{}"]
            await store.finish(record)
            store.record(replace(record, id=f"{3:032x}"))
            store.record(activation(4))
            for _ in range(2):  # queued, then written
                for number in (1, 3):
                    found = await store.activation("ns", f"{number:032x}")
                    assert (found.large, found.pickled) == (large, large)
                    assert found.response == record.response
                await store.flush()
            if isinstance(store, SqliteStore):
                listed = await store.activations(ActivationQuery("ns"))
                assert [(one.large, one.pickled) for one in listed] == [(None, None), (b"null", None), (b"null", None)]
                await store.prune(Retention(activations_bytes=0), now_ms=0)
                assert await store._read(lambda file: file.execute("SELECT count(*) FROM piece").fetchone()) == (0,)

    asyncio.run(go())


def test_a_document_is_put_replaced_and_deleted(run):
    async def scenario(store):
        await store.put("action", Document("ns", "b", b"1"))
        await store.put("action", Document("ns", "a", b"2"))
        await store.put("action", Document("ns", "b", b"3"))
        await store.put("action", Document("m", "z", b"4"))
        await store.put("namespace", Document("ns", "b", b"5"))
        await store.delete("namespace", "ns", "b")
        await store.delete("namespace", "ns", "never was")
        assert await store.scan("action") == [
            Document("m", "z", b"4"), Document("ns", "a", b"2"), Document("ns", "b", b"3")
        ]  # fmt: skip
        assert await store.scan("namespace") == []

    run(scenario)


def test_several_documents_change_together(run):
    async def scenario(store):
        await store.put("package", Document("ns", "p", b"1"))
        await store.put("action", Document("ns", "p/a", b"1"))
        new = Document("ns", "q", b"2")
        await store.apply([Delete("action", "ns", "p/a"), Delete("package", "ns", "p"), Put("package", new)])
        assert await store.scan("action") == []
        assert await store.scan("package") == [new]
        await store.apply([])
        await store.apply([Put("package", new), Delete("package", "ns", "q")])
        assert await store.scan("package") == []

    run(scenario)


def test_a_record_is_readable_at_once(run):
    async def scenario(store):
        store.record(activation(1, pickled=b"\x80"))
        assert await store.activation("ns", f"{1:032x}") == activation(1, pickled=b"\x80")
        assert await store.activations(ActivationQuery("ns")) == [activation(1, pickled=b"\x80")]
        assert await store.count_activations(ActivationQuery("ns")) == 1

    run(scenario)


def test_a_record_belongs_to_its_namespace(run):
    async def scenario(store):
        for _ in range(2):  # queued, then written
            store.record(activation(1, owner="other"))
            assert await store.activation("ns", f"{1:032x}") is None
            assert await store.activation("other", f"{1:032x}") is not None
            assert await starts(store) == []
            await store.flush()
        assert await store.activation("ns", "f" * 32) is None

    run(scenario)


def test_lists_are_newest_first_whatever_is_written_already(run):
    async def scenario(store):
        for number in (5, 1, 9):
            store.record(activation(number))
        await store.flush()
        for number in (7, 2, 10):
            store.record(activation(number))
        assert await starts(store) == [10, 9, 7, 5, 2, 1]
        for skip in range(7):
            for limit in range(1, 7):
                assert await starts(store, skip=skip, limit=limit) == [10, 9, 7, 5, 2, 1][skip : skip + limit]
            assert await store.count_activations(ActivationQuery("ns", skip=skip)) == 6 - skip
        assert await store.count_activations(ActivationQuery("ns", skip=9)) == 0

    run(scenario)


def test_of_equal_starts_the_one_recorded_later_is_first(run):
    async def scenario(store):
        for number in (1, 2, 3):
            store.record(activation(number, start=50))
            if number == 2:
                await store.flush()
        for _ in range(2):
            found = await store.activations(ActivationQuery("ns"))
            assert [one.id for one in found] == [f"{number:032x}" for number in (3, 2, 1)]
            await store.flush()

    run(scenario)


def test_a_list_is_narrowed_by_name_and_time_inclusive(run):
    async def scenario(store):
        for number in range(10):
            store.record(activation(number, name="f" if number % 2 else "pkg/g"))
            if number == 4:
                await store.flush()
        for _ in range(2):
            assert await starts(store, name="pkg/g") == [8, 6, 4, 2, 0]
            assert await starts(store, since=3, upto=5) == [5, 4, 3]
            assert await starts(store, name="f", since=3, upto=5) == [5, 3]
            assert await starts(store, name="f", since=3, upto=7, skip=1) == [5, 3]
            assert await store.count_activations(ActivationQuery("ns", name="f", upto=7, skip=1, limit=1)) == 3
            assert await starts(store, name="g") == []
            await store.flush()

    run(scenario)


def test_an_accepted_call_is_unfinished_until_its_end(run):
    async def scenario(store):
        for number in (3, 1, 2):
            await store.accept(accepted(number, rerun=number == 1))
        await store.mark_started(f"{1:032x}")
        assert await store.unfinished() == [accepted(3), accepted(1, rerun=True, started=True), accepted(2)]
        await store.finish(activation(3))
        assert [one.accepted for one in await store.unfinished()] == [1, 2]
        assert await store.activation("ns", f"{3:032x}") == activation(3)
        await store.mark_started("f" * 32)  # unknown id
        assert len(await store.unfinished()) == 2

    run(scenario)


def test_starts_are_counted_until_the_call_begins_or_the_server_stops(run):
    async def counts(store):
        return [one.starts for one in await store.unfinished()]

    async def scenario(store):
        for number in (1, 2):
            await store.accept(accepted(number))
            await store.count_start(f"{number:032x}")
        await store.count_start(f"{1:032x}")
        await store.count_start("f" * 32)  # unknown id
        assert await counts(store) == [2, 1]
        await store.mark_started(f"{1:032x}")
        await store.forget_starts(f"{2:032x}")
        assert await counts(store) == [0, 0]

    run(scenario)


def test_the_first_end_stands(run):
    async def scenario(store):
        await store.accept(accepted(1))
        await store.finish(activation(1, response=b"first"))
        await store.finish(activation(1, response=b"second"))
        assert (await store.activation("ns", f"{1:032x}")).response == b"first"
        assert await store.count_activations(ActivationQuery("ns")) == 1

    run(scenario)


def test_ends_that_race_leave_one_record(run):
    async def scenario(store):
        await store.accept(accepted(1))
        ends = [activation(1, response=b"%d" % number) for number in range(5)]
        await asyncio.gather(*map(store.finish, ends))
        assert await store.activations(ActivationQuery("ns")) == [ends[0]]
        assert await store.unfinished() == []

    run(scenario)


def test_a_call_that_has_a_record_is_not_unfinished(run):
    """The record may be written before the acceptance, if the caller stops waiting just as the call ends."""

    async def scenario(store):
        store.record(activation(1))
        await store.accept(accepted(1))
        assert await store.unfinished() == []

    run(scenario)


def test_a_journal_segment_begins_with_its_snapshot(run):
    async def scenario(store):
        with pytest.raises(StoreError, match="open_segment"):
            store.journal(b"too early")
        store.open_segment(b"s1")
        store.journal(b"a")
        store.journal(b"")
        await store.flush()
        store.journal(b"b" * 100_000)
        store.open_segment(b"s2")
        store.open_segment(b"s3")
        store.journal(b"c")
        await store.flush()
        assert await journal(store) == [
            (1, 0, b"s1"), (1, 1, b"a"), (1, 2, b""), (1, 3, b"b" * 100_000), (2, 0, b"s2"), (3, 0, b"s3"), (3, 1, b"c")
        ]  # fmt: skip

    run(scenario)


def test_what_was_written_is_there_after_a_restart(opened):
    async def scenario():
        async with opened() as store:
            await store.put("action", Document("ns", "a", b"1"))
            await store.accept(accepted(7))
            store.open_segment(b"s1")
            for number in range(3000):
                store.record(activation(number + 100))
                store.journal(b"%d" % number)
        async with opened() as store:
            assert await store.scan("action") == [Document("ns", "a", b"1")]
            assert await store.unfinished() == [accepted(7)]
            assert await store.count_activations(ActivationQuery("ns")) == 3000
            assert await starts(store, limit=2) == [3099, 3098]
            store.open_segment(b"s2")
            store.record(activation(1))
            await store.flush()
            assert await starts(store, skip=3000) == [1]
            entries = await journal(store)
            assert entries[0] == (1, 0, b"s1")
            assert entries[1:3001] == [(1, number + 1, b"%d" % number) for number in range(3000)]
            assert entries[3001:] == [(2, 0, b"s2")]

    asyncio.run(scenario())


def test_all_is_well_at_first(run):
    async def scenario(store):
        assert store.health.problem is None
        await store.flush()

    run(scenario)


def test_old_activations_are_forgotten(run):
    async def scenario(store):
        for number in range(2000):
            store.record(activation(number))  # ends at number + 1
        await store.prune(Retention(activations_s=1), now_ms=2500)
        assert await starts(store, limit=3000) == list(range(1999, 1498, -1))

    run(scenario)


def test_too_many_activations_lose_the_oldest(run):
    async def scenario(store):
        for number in range(1000):
            store.record(activation(number, response=b"x" * 996))  # 1000 bytes each
        await store.prune(Retention(activations_bytes=300_500), now_ms=0)
        assert await starts(store, limit=3000) == list(range(999, 699, -1))

    run(scenario)


def test_a_record_that_a_clock_behind_calls_old_is_as_young_as_those_before_it(run):
    async def scenario(store):
        for number, start in enumerate([100, 200, 5000, 1, 2, 90_000, 6000]):  # the clock was behind, then ahead
            store.record(activation(number, start=start))
        await store.prune(Retention(activations_s=2), now_ms=6500)
        assert sorted(await starts(store)) == [1, 2, 5000, 6000, 90_000]

    run(scenario)


def test_without_a_time_nothing_is_deleted_by_age(run):
    async def scenario(store):
        for number in range(10):
            store.record(activation(number))
        store.open_segment(b"old")
        store.open_segment(b"new")
        await store.flush()
        await store.prune(Retention(activations_s=0, journal_s=0), now_ms=None)
        assert len(await starts(store)) == 10
        assert len(await journal(store)) == 2

    run(scenario)


def test_one_tenants_many_records_push_out_no_record_of_another(run):
    async def scenario(store):
        for number in range(10):
            store.record(activation(number, owner="small", response=b"x" * 996))
        for number in range(100, 1100):
            store.record(activation(number, owner="greedy", response=b"x" * 996))
        retention = Retention(activations_bytes=300_000, activations_min_bytes=0)
        await store.prune(retention, now_ms=0, weights={"small": 1, "greedy": 1})
        assert await store.count_activations(ActivationQuery("small")) == 10
        kept = await store.activations(ActivationQuery("greedy", limit=2000))
        assert [one.start for one in kept] == list(range(1099, 809, -1))  # the newest 290

    run(scenario)


def test_records_of_a_deleted_namespace_go_first(run):
    async def scenario(store):
        for number in range(100):
            store.record(activation(number, owner="here:1" if number % 2 else "here:0", response=b"x" * 996))
        await store.prune(Retention(activations_bytes=60_000), now_ms=0, weights={"here:1": 1})
        assert await store.count_activations(ActivationQuery("here:1")) == 50
        assert await store.count_activations(ActivationQuery("here:0")) == 10

    run(scenario)


def test_an_event_is_stored_once_for_all_its_calls(opened):
    body = b'{"x":"' + b"y" * 100_000 + b'"}'
    fired = activation(1000)
    calls = [replace(accepted(number, cause=fired.id, event=fired.id), payload=b"") for number in range(50)]

    async def scenario():
        async with opened() as store:
            await store.accept_all(calls, fired, body)
            if isinstance(store, SqliteStore):
                size = (store.path.stat().st_size, store.path.with_name("aliquot.db-wal").stat().st_size)
                assert sum(size) < 10 * len(body)
        async with opened() as store:
            assert await store.unfinished() == calls
            assert await store.payload(calls[0].id) == await store.payload(calls[49].id) == body
            for call in calls[:49]:
                await store.finish(replace(fired, id=call.id))
            assert await store.payload(calls[49].id) == body
            await store.finish(replace(fired, id=calls[49].id))
            assert await store.unfinished() == []
            if isinstance(store, SqliteStore):
                assert store._batches._connection.execute("SELECT count(*) FROM event").fetchone() == (0,)

    asyncio.run(scenario())


def test_the_newest_time_is_that_of_the_last_write(run):
    async def scenario(store):
        assert await store.newest_ms() is None
        store.record(activation(5000))
        store.record(activation(10))
        await store.flush()
        assert await store.newest_ms() == 11

    run(scenario)


def test_too_much_journal_loses_whole_segments_but_never_the_newest(run):
    async def scenario(store):
        for _segment in range(4):
            store.open_segment(b"s" * 1000)
            for _ in range(9):
                store.journal(b"x" * 1000)
                await store.flush()
        await store.prune(Retention(journal_bytes=25_000), now_ms=0)
        entries = await journal(store)
        assert [(segment, number) for segment, number, _ in entries] == [(s, n) for s in (3, 4) for n in range(10)]
        await store.prune(Retention(journal_bytes=0, journal_s=0), now_ms=10**15)
        assert {segment for segment, _, _ in await journal(store)} == {4}
        store.journal(b"goes on")
        await store.flush()
        assert (await journal(store))[-1] == (4, 10, b"goes on")

    run(scenario)


def test_a_record_of_every_size_comes_back(run):
    async def scenario(store):
        sizes = [0, 1, 4000, 70_000, 2_000_000]
        for number, size in enumerate(sizes):
            store.record(activation(number, response=b"r" * size, pickled=b"\0" * size))
        await store.flush()
        for number, size in enumerate(sizes):
            expected = activation(number, response=b"r" * size, pickled=b"\0" * size)
            assert await store.activation("ns", expected.id) == expected
            assert replace(expected, pickled=None) != expected

    run(scenario)
