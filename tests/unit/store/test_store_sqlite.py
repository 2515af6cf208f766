"""The store in SQLite beyond the common guarantees: groups, queued writes, returned pages and migrations."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from stored import accepted, activation, journal, opened, starts

from aliquot.live.store import (
    ActivationQuery,
    Document,
    Retention,
    StoreError,
    prune,
    read_journal,
    schema,
    write_queue,
)
from aliquot.live.store.base import LargePageError
from aliquot.live.store.fair_reads import FairReads
from aliquot.testing.waiting import wait_on_loop


def test_a_thousand_calls_accepted_at_once_share_their_commits(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            await asyncio.gather(*(store.accept(accepted(number)) for number in range(1000)))
            assert store.commits <= 2
            await asyncio.gather(*(store.mark_started(f"{number:032x}") for number in range(1000)))
            await asyncio.gather(*(store.finish(activation(number)) for number in range(500)))
            assert store.commits <= 6
            assert [one.accepted for one in await store.unfinished()] == list(range(500, 1000))
            assert all(one.started for one in await store.unfinished())
            assert await store.count_activations(ActivationQuery("ns")) == 500

    asyncio.run(scenario())


def test_what_is_written_behind_shares_the_commit_of_the_one_who_waits(tmp_path):
    async def scenario():
        async with opened(tmp_path, gather_s=1000) as store:
            store.open_segment(b"s")
            for number in range(5000):
                store.record(activation(number))
                store.journal(b"%d" % number)
            assert await store.count_activations(ActivationQuery("ns")) == 5000
            assert store.commits == 0
            await store.accept(accepted(9999))
            assert store.commits == 2  # groups have a maximum size
            assert len(await journal(store)) == 5001

    asyncio.run(scenario())


def test_durable_writes_that_follow_a_group_closely_share_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(write_queue, "MAX_DURABLE_REST_S", 0.5)

    async def scenario():
        async with opened(tmp_path) as store:
            queue = store._write_queue
            write = queue._write

            def write_slowly(group):
                time.sleep(0.5)
                return write(group)

            queue._write = write_slowly
            await asyncio.gather(store.accept(accepted(0)), store.accept(accepted(6)))
            assert store.commits == 1
            writes = []
            for number in range(1, 6):
                writes.append(asyncio.create_task(store.accept(accepted(number))))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await asyncio.gather(*writes)
            assert store.commits == 2
            queue._write = write
            await asyncio.gather(store.accept(accepted(7)), store.accept(accepted(8)))
            assert queue._durable_from_s > 0
            await store.accept(accepted(9))
            assert queue._durable_from_s == 0  # one caller alone does not pause between its writes

    asyncio.run(scenario())


def test_what_is_written_behind_needs_nobody_who_waits(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            store.record(activation(1))
            await wait_on_loop(lambda: store.commits, what="a commit")
            with closing(sqlite3.connect(store.path)) as other:
                assert other.execute("SELECT count(*) FROM activation").fetchone() == (1,)

    asyncio.run(scenario())


def test_an_end_is_not_readable_before_it_is_durable(tmp_path):
    async def scenario():
        async with opened(tmp_path, busy_ms=1_000_000) as store:
            await store.accept(accepted(1))
            with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                finishing = asyncio.create_task(store.finish(activation(1)))
                for _ in range(20):
                    await asyncio.sleep(0.001)
                    assert await store.activation("ns", f"{1:032x}") is None
                    assert await starts(store) == []
                assert not finishing.done()
                other.execute("ROLLBACK")
            await finishing
            assert await starts(store) == [1]

    asyncio.run(scenario())


def test_lists_and_counts_agree_while_groups_are_written(tmp_path):
    async def scenario():
        async with opened(tmp_path, gather_s=0.0001) as store:
            for number in range(2000):
                store.record(activation(number))
                if number % 7 == 0:
                    await asyncio.sleep(0)
                if number % 50 == 0:
                    assert await store.count_activations(ActivationQuery("ns")) == number + 1
                    assert await starts(store, skip=number // 3, limit=20) == [
                        start for start in range(number - number // 3, number - number // 3 - 20, -1) if start >= 0
                    ]

    asyncio.run(scenario())


def test_after_it_is_closed_it_refuses(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            pass
        with pytest.raises(StoreError, match="closed"):
            await store.accept(accepted(1))
        await store.close()

    asyncio.run(scenario())


# --- the journal from outside -------------------------------------------------------------------------------


def test_the_journal_of_a_running_server_is_read_by_another_process(tmp_path):
    reader = (
        "import pathlib, sys\n"
        "from aliquot.live.store import read_journal\n"
        "print(*(entry.body.decode() for entry in read_journal(pathlib.Path(sys.argv[1]))))\n"
    )

    async def read(path):
        command = [sys.executable, "-c", reader, path]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        return done.stdout

    async def scenario():
        async with opened(tmp_path) as store:
            store.open_segment(b"s")
            store.journal(b"a")
            await store.flush()
            assert await read(tmp_path) == b"s a\n"
            store.journal(b"b")
            await store.flush()
            assert await read(store.path) == b"s a b\n"
        assert await read(tmp_path) == b"s a b\n"
        async with opened(tmp_path) as store:  # the reader left no lock behind
            assert [body for _, _, body in await journal(store)] == [b"s", b"a", b"b"]

    asyncio.run(scenario())


def test_a_journal_is_read_while_it_grows(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            store.open_segment(b"s")
            await store.flush()
            entries = read_journal(tmp_path)
            assert next(entries).body == b"s"
            store.journal(b"later")
            await store.flush()
            assert next(entries).body == b"later"
            entries.close()

    asyncio.run(scenario())


# --- retention ----------------------------------------------------------------------------------------------


def test_old_journal_segments_are_forgotten(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for segment in range(3):
                store.open_segment(b"%d" % segment)
                await store.flush()
            far = 10**14
            store._batches._connection.execute("UPDATE journal SET written_ms = ? WHERE segment > 1", (far,))
            await store.prune(Retention(journal_s=60), now_ms=far)
            assert await journal(store) == [(2, 0, b"1"), (3, 0, b"2")]

    asyncio.run(scenario())


def test_a_segment_whose_deletion_is_cut_short_is_still_a_beginning(tmp_path, monkeypatch):
    """The pruner deletes a segment from its end in several transactions, so the rest begins with the snapshot."""
    monkeypatch.setattr(prune, "MAX_STEP_ROWS", 1)
    left = []

    async def scenario():
        async with opened(tmp_path) as store:
            for _segment in range(2):
                store.open_segment(b"s")
                await store.flush()
                for number in range(3):
                    store.journal(b"%d" % number)
                    await store.flush()  # so that each step is a row of its own
            step = prune.Pruner._step

            async def watched(self, work):
                found = await step(self, work)
                left.append([entry[1:] for entry in await journal(store) if entry[0] == 1])
                return found

            monkeypatch.setattr(prune.Pruner, "_step", watched)
            await store.prune(Retention(journal_bytes=1), now_ms=0)

    asyncio.run(scenario())
    whole = [(0, b"s"), (1, b"0"), (2, b"1"), (3, b"2")]
    assert all(entries == whole[: len(entries)] for entries in left)
    assert {len(entries) for entries in left} == {0, 1, 2, 3, 4}


def test_a_clock_that_jumped_does_not_keep_old_records(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            store.record(activation(0, start=10**14))
            for number in range(1, 1200):
                store.record(activation(number))
            await store.prune(Retention(activations_s=1), now_ms=10**6)
            assert await starts(store) == [10**14]

    asyncio.run(scenario())


def test_the_file_gives_back_what_it_does_not_need(tmp_path, monkeypatch):
    monkeypatch.setattr(prune, "MIN_SPARE_PAGES", 100)

    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(1500):
                store.record(activation(number, response=b"x" * 9000))
            await store.put("action", Document("ns", "stays", b"1"))
            await store.prune(Retention(), now_ms=0)
            full = store.path.stat().st_size
            assert full > 1500 * 9000
            pruning = asyncio.create_task(store.prune(Retention(activations_bytes=100_000), now_ms=0))
            for number in range(100):  # writes succeed meanwhile
                await store.accept(accepted(number))
            await pruning
            assert store.path.stat().st_size < full / 5
            assert await store.count_activations(ActivationQuery("ns")) == 11
            assert await store.scan("action") == [Document("ns", "stays", b"1")]
            assert len(await store.unfinished()) == 100

    asyncio.run(scenario())


def test_the_room_of_what_was_forgotten_is_used_again(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            sizes = []
            for life in range(6):
                for number in range(600):
                    store.record(activation(life * 1000 + number, response=b"x" * 9000))
                await store.prune(Retention(activations_bytes=3_000_000), now_ms=0)
                sizes.append(store.path.stat().st_size)
            assert sizes[-1] < 1.2 * sizes[1]

    asyncio.run(scenario())


# --- versions -----------------------------------------------------------------------------------------------


def test_records_of_an_earlier_namespace_stay_hidden_when_owners_replace_times(tmp_path, monkeypatch):
    """Until version 5 the creation time of a namespace told its records from those of an earlier one of its name."""

    async def scenario():
        monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:5])
        monkeypatch.setattr(schema, "VERSION", 5)
        connection = schema.connect_writer(schema.prepare(tmp_path), busy_ms=0)
        body = b'{"name":"ns","keys":[],"weight":1.0,"quota":{},"created":500}'
        connection.execute("INSERT INTO document VALUES ('namespaces', 'ns', 'ns', ?)", (body,))
        for number in (100, 700):
            row = (f"{number:032x}", number, number)
            connection.execute(
                "INSERT INTO activation (id, namespace, name, start_ms, end_ms, bytes, summary, response, logs) "
                "VALUES (?, 'ns', 'f', ?, ?, 9, x'7b7d', x'7b7d', x'5b5d')",
                row,
            )
            connection.execute(
                "INSERT INTO queue (id, namespace, name, accepted_ms, payload, pickled, rerun, started) "
                "VALUES (?, 'ns', 'f', ?, x'7b7d', 0, 0, 0)",
                (f"{number + 1:032x}", number),
            )
        connection.close()
        monkeypatch.undo()
        async with opened(tmp_path) as store:
            assert await starts(store) == [700]
            assert await store.activation("ns", f"{100:032x}") is None
            assert [one.owner for one in await store.unfinished()] == ["ns:earlier", "ns"]

    asyncio.run(scenario())


def test_an_older_file_is_brought_forward_and_keeps_what_it_holds(tmp_path, monkeypatch):
    async def scenario():
        async with opened(tmp_path) as store:
            await store.accept(accepted(1))
        monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE more (x)"))
        newer = schema.VERSION + 1
        monkeypatch.setattr(schema, "VERSION", newer)
        async with opened(tmp_path) as store:
            assert await store.unfinished() == [accepted(1)]
            assert store._batches._connection.execute("PRAGMA user_version").fetchone() == (newer,)
            assert store._batches._connection.execute("SELECT count(*) FROM more").fetchone() == (0,)

    asyncio.run(scenario())


def test_lists_and_sums_are_answered_from_their_indexes(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            plan = store._batches._connection.execute
            for where, index in (("", "activation_by_start"), ("AND name = 'f'", "activation_by_name")):
                rows = plan(
                    f"EXPLAIN QUERY PLAN SELECT * FROM activation WHERE namespace = 'ns' {where} "  # noqa: S608
                    "AND seq <= 9 AND start_ms >= 1 ORDER BY start_ms DESC, seq DESC LIMIT 1"
                ).fetchall()
                assert [index in row[-1] for row in rows] == [True], rows
            (row,) = plan(f"EXPLAIN QUERY PLAN {prune.TOTALS}").fetchall()
            assert "COVERING INDEX" in row[-1]

    asyncio.run(scenario())


def test_owners_take_turns_in_reads():
    async def scenario():
        reads, order = FairReads(sqlite3.connect(":memory:", check_same_thread=False)), []
        begun = threading.Event()

        def read(name):
            return reads.run(name[0], lambda _: (begun.wait(), order.append(name)))

        waiting = [asyncio.ensure_future(read(name)) for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2")]
        await asyncio.sleep(0)
        waiting[2].cancel()
        begun.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert order == ["a1", "a2", "b1", "c1", "b2", "a4"]
        with pytest.raises(ZeroDivisionError):
            await reads.run("a", lambda _: 1 / 0)
        assert await reads.run("a", lambda _: "after an error") == "after an error"
        reads.close()

    asyncio.run(scenario())


def test_a_page_of_large_records_is_refused_and_their_summaries_are_read_without_them(tmp_path, monkeypatch):
    monkeypatch.setattr("aliquot.live.store.reads.MAX_PAGE_BYTES", 100_000)

    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(12):
                store.record(activation(number, response=b"x" * 10_000))
            await store.flush()
            with pytest.raises(LargePageError, match="Ask for fewer with 'limit', or without 'docs'"):
                await store.activations(ActivationQuery("ns"))
            whole = await store.activations(ActivationQuery("ns", limit=9))
            assert [len(one.response) for one in whole] == [10_000] * 9
            found = await store.activations(ActivationQuery("ns", summaries=True))
            assert [(one.summary, one.response, one.logs) for one in found] == [(b"{}", b"", b"")] * 12

    asyncio.run(scenario())
