"""Failures of the store: a full disk, a locked, damaged or newer file, and a second server."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from small_disks import small_disk
from stored import accepted, activation, journal, opened, starts

from aliquot.live.store import ActivationQuery, Delete, Document, Put, SqliteStore, StoreError, read_journal
from aliquot.live.store.records import Activation
from aliquot.live.store.schema import VERSION
from aliquot.testing.waiting import wait_on_loop


async def until_well(store):
    await wait_on_loop(lambda: store.health.problem, lambda problem: problem is None, what="the store to be well again")


async def fill(store):
    """Record activations until the disk is full, and return their number."""
    numbers = itertools.count(1001)

    def write():
        for number in itertools.islice(numbers, 50):
            store.record(activation(number, response=b"x" * 3000))
            store.journal(b"%d" % number)
        return store.health.problem

    await wait_on_loop(write, what="the disk to be full", pause_s=0.005)
    return next(numbers) - 1001


# --- a full disk --------------------------------------------------------------------------------------------


class Disk:
    """Keeps the file from growing. SQLite's limit on its pages gives the same error as a full disk."""

    def __init__(self, store):
        self._connection = store._batches._connection
        self._connection.execute("PRAGMA max_page_count = 300")

    def make_room(self):
        self._connection.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_is_told_refused_and_overcome(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            store.open_segment(b"s")
            await store.accept(accepted(1))
            disk = Disk(store)
            written = await fill(store)
            assert "disk is full" in store.health.problem
            for refused in (
                store.accept(accepted(2)),
                store.put("action", Document("ns", "a", b"x" * 9000)),
                store.mark_started(f"{1:032x}"),
                store.finish(activation(1)),
                store.flush(),
            ):
                with pytest.raises(StoreError, match="disk is full"):
                    await refused
            # Readers still see every recorded activation.
            assert await store.count_activations(ActivationQuery("ns")) == written
            assert await store.activation("ns", f"{1:032x}") is None
            disk.make_room()
            await until_well(store)
            await store.flush()
            # Writes behind are in the file, and refused writes are not.
            assert await store.count_activations(ActivationQuery("ns")) == written
            assert [body for _, _, body in await journal(store)][1:] == [b"%d" % (1001 + n) for n in range(written)]
            assert await store.unfinished() == [accepted(1)]
            assert await store.scan("action") == []
            await store.accept(accepted(2))
            await store.finish(activation(1))
        async with opened(tmp_path) as store:
            assert await store.count_activations(ActivationQuery("ns")) == written + 1
            assert await store.unfinished() == [accepted(2)]

    asyncio.run(scenario())


def test_the_problem_ends_by_itself_when_nothing_waits_to_be_written(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            disk = Disk(store)
            with pytest.raises(StoreError, match="disk is full"):
                await store.put("action", Document("ns", "a", b"x" * 2_000_000))
            disk.make_room()
            await until_well(store)
            assert await store.scan("action") == []

    asyncio.run(scenario())


def test_a_real_file_system_without_room(tmp_path):
    async def scenario(small):
        ballast = small / "ballast"
        ballast.write_bytes(b"x" * 500_000)
        async with opened(small) as store:
            store.open_segment(b"s")
            written = await fill(store)
            with pytest.raises(StoreError, match="disk is full"):
                await store.accept(accepted(2))
            ballast.unlink()
            subprocess.run(["mount", "-o", "remount,size=50m", small], check=True)  # noqa: ASYNC221
            await until_well(store)
            await store.flush()
            assert await store.count_activations(ActivationQuery("ns")) == written
            assert await store.unfinished() == []
        # The journal can be read on a read-only file system, where SQLite cannot create its shared-memory file.
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)  # noqa: ASYNC221
        assert [(entry.segment, entry.number) for entry in read_journal(small)] == [(1, n) for n in range(written + 1)]

    with small_disk(tmp_path / "small", "2m") as small:
        asyncio.run(scenario(small))


def test_a_store_that_cannot_flush_lets_go_of_the_file_all_the_same(tmp_path):
    async def scenario():
        store = await SqliteStore.open(tmp_path)
        store.open_segment(b"s")
        Disk(store)
        await fill(store)
        with pytest.raises(StoreError, match="disk is full"):
            await store.close()
        async with opened(tmp_path) as store:
            assert store.health.problem is None

    asyncio.run(scenario())


# --- locks --------------------------------------------------------------------------------------------------


def test_a_file_locked_by_another_process_is_told_and_overcome(tmp_path):
    async def scenario():
        async with opened(tmp_path, busy_ms=20) as store:
            await store.put("action", Document("ns", "a", b"1"))
            with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                store.record(activation(1))
                with pytest.raises(StoreError, match=r"locked by another process.*fuser"):
                    await store.accept(accepted(2))
                assert "locked" in store.health.problem
                assert await starts(store) == [1]
                assert await store.scan("action") == [Document("ns", "a", b"1")]
                other.execute("ROLLBACK")
            await until_well(store)
            await store.flush()
            assert await store.unfinished() == []
            assert await starts(store) == [1]

    asyncio.run(scenario())


def test_a_file_locked_at_the_start_is_told(tmp_path):
    async def scenario():
        async with opened(tmp_path):
            pass
        with closing(sqlite3.connect(tmp_path / "aliquot.db", isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreError, match="locked by another process"):
                await SqliteStore.open(tmp_path, busy_ms=20)
        async with opened(tmp_path) as store:  # the failed start left no lock behind
            assert store.health.problem is None

    asyncio.run(scenario())


def test_a_second_server_is_told_who_has_the_file(tmp_path):
    second = (
        "import asyncio, pathlib, sys\n"
        "from aliquot.live.store import SqliteStore\n"
        "asyncio.run(SqliteStore.open(pathlib.Path(sys.argv[1])))\n"
    )

    async def scenario():
        async with opened(tmp_path):
            with pytest.raises(StoreError, match="open in this process"):
                await SqliteStore.open(tmp_path)
            command = [sys.executable, "-c", second, tmp_path]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
            assert b"in use by another server (process %d)" % os.getpid() in done.stderr
            assert b"choose another data folder" in done.stderr

    asyncio.run(scenario())


# --- files that cannot be opened ----------------------------------------------------------------------------


def refuses(path, match):
    with pytest.raises(StoreError, match=match):
        asyncio.run(SqliteStore.open(path, busy_ms=0))


def test_a_damaged_file_is_told(tmp_path):
    (tmp_path / "aliquot.db").write_bytes(b"not a database" * 1000)
    refuses(tmp_path, "is damaged.*move it away")
    with pytest.raises(StoreError, match="is damaged"):
        list(read_journal(tmp_path))


def test_a_file_cut_short_is_told(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(2000):
                store.record(activation(number))

    asyncio.run(scenario())
    os.truncate(tmp_path / "aliquot.db", 20_000)
    refuses(tmp_path, "is damaged.*move it away")


@pytest.mark.parametrize("beside", [(), ("usage.ring",)])
def test_an_empty_file_is_told_and_left_alone(tmp_path, beside):
    for name in ("aliquot.db", *beside):
        (tmp_path / name).write_bytes(b"")
    refuses(tmp_path, "aliquot.db is empty.*bring back a copy.*move it away to begin anew")
    assert (tmp_path / "aliquot.db").stat().st_size == 0


def test_a_file_without_our_tables_is_told(tmp_path):
    with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
        connection.execute("PRAGMA user_version = 3")
    refuses(tmp_path, "has no tables.*move it away to begin anew")
    with pytest.raises(StoreError, match="has no tables"):
        list(read_journal(tmp_path))


def test_a_log_without_its_file_is_told(tmp_path):
    (tmp_path / "aliquot.db-wal").write_bytes(b"x" * 5000)
    refuses(tmp_path, "aliquot.db is missing, but its write-ahead log aliquot.db-wal is there")
    assert not (tmp_path / "aliquot.db").exists()


def test_a_start_that_was_killed_while_it_made_the_file_is_made_up_for(tmp_path):
    (tmp_path / "aliquot.db-new").write_bytes(b"half")

    async def scenario():
        async with opened(tmp_path) as store:
            await store.put("action", Document("ns", "a", b"1"))

    asyncio.run(scenario())
    assert not (tmp_path / "aliquot.db-new").exists()


def test_a_file_cut_in_its_last_page_is_told(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(2000):
                store.record(activation(number))

    asyncio.run(scenario())
    size = (tmp_path / "aliquot.db").stat().st_size
    os.truncate(tmp_path / "aliquot.db", size - 4096)
    refuses(tmp_path, f"is damaged: it was cut to {size - 4096} of {size} bytes; bring back a copy")


def test_tenants_get_a_reason_without_paths(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            Disk(store)
            with pytest.raises(StoreError, match="disk is full") as caught:
                await store.put("action", Document("ns", "a", b"x" * 2_000_000))
            assert str(tmp_path) in str(caught.value)
            assert "disk is full" in caught.value.public
            for text in (caught.value.public, store.health.problem):
                assert "/" not in text

    asyncio.run(scenario())


def test_damage_below_the_surface_is_told_when_it_is_met(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(2000):
                store.record(activation(number))
        with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
            index = "SELECT rootpage FROM sqlite_schema WHERE name = 'activation_by_start'"
            (page,) = connection.execute(index).fetchone()
        with (tmp_path / "aliquot.db").open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
        store = await SqliteStore.open(tmp_path)
        with pytest.raises(StoreError, match="is damaged"):
            await store.activations(ActivationQuery("ns", limit=2000))
        assert await store.activation("ns", f"{5:032x}") == activation(5)  # by another index
        for number in range(2000, 4000):
            store.record(activation(number))
        with pytest.raises(StoreError, match="is damaged"):
            await store.close()

    asyncio.run(scenario())


def test_a_newer_file_is_told(tmp_path):
    async def scenario():
        async with opened(tmp_path):
            pass

    asyncio.run(scenario())
    with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    refuses(tmp_path, "newer Aliquot")


def test_the_database_of_another_program_is_left_alone(tmp_path):
    with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
        connection.execute("CREATE TABLE bookmarks (x)")
    before = (tmp_path / "aliquot.db").read_bytes()
    refuses(tmp_path, "another program")
    assert (tmp_path / "aliquot.db").read_bytes() == before


def test_a_directory_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    refuses(tmp_path / "file" / "data", "cannot be made.*choose another data folder")
    refuses(Path("/proc/self/x.db"), "cannot be written.*choose another")


def test_a_journal_that_is_not_there_is_told(tmp_path):
    with pytest.raises(StoreError, match="is not there"):
        list(read_journal(tmp_path))


# --- values, and too much of them ---------------------------------------------------------------------------


def test_a_value_that_cannot_be_stored_harms_itself_alone(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            bad = Activation("b" * 32, "ns", "half \ud800", 500, 501, b"", b"", b"")
            others = [activation(number) for number in range(300)]
            for number, record in enumerate(others):
                store.record(record)
                if number == 150:
                    store.record(bad)
            doomed = asyncio.gather(
                store.put("action", Document("ns", "good", b"1")),
                store.put("action", Document("ns", "bad \ud800", b"1")),
                store.accept(accepted(1)),
                return_exceptions=True,
            )
            good, error, also_good = await doomed
            assert good is None
            assert also_good is None
            assert isinstance(error, StoreError)
            assert "cannot be stored" in str(error)
            await store.flush()
            assert store.health.problem is None
            assert await starts(store, limit=1000) == list(range(299, -1, -1))
            assert len(await store.scan("action")) == 1

    asyncio.run(scenario())


def test_documents_that_change_together_all_stay_when_one_cannot_be_stored(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            kept = [Document("ns", name, b"1") for name in ("a", "b")]
            await store.apply([Put("action", document) for document in kept])
            bad = Put("action", Document("ns", "bad \ud800", b"1"))
            with pytest.raises(StoreError, match="cannot be stored"):
                await store.apply([Delete("action", "ns", "a"), bad, Delete("action", "ns", "b")])
            assert await store.scan("action") == kept

    asyncio.run(scenario())


def test_too_many_queued_writes_are_a_problem(tmp_path):
    async def scenario():
        async with opened(tmp_path, max_backlog_bytes=100_000, max_backlog_rows=50) as store:
            for number in range(30):
                store.record(activation(number, response=b"x" * 4000))
            assert "MiB wait" in store.health.problem
            await store.flush()
            assert store.health.problem is None
            store.open_segment(b"")
            for _ in range(60):
                store.journal(b"")
            assert "writes wait" in store.health.problem
            assert store.backlog == 61
            await store.flush()
            assert store.backlog == 0
            assert store.health.problem is None

    asyncio.run(scenario())


def test_an_owner_whose_records_wait_to_be_written_is_behind_alone(tmp_path):
    async def scenario():
        async with opened(tmp_path, max_backlog_bytes=100_000) as store:
            for number in range(12):  # more than all may have together
                store.record(activation(number, owner="greedy", response=b"x" * 10_000))
            store.record(activation(12, owner="other", response=b"x" * 10_000))
            assert store.health.problem is None
            assert list(store.health.behind) == ["greedy"]
            assert "0.1 MiB of the namespace's results wait to be written" in store.health.behind["greedy"]
            await store.flush()
            assert store.health.behind == {}
            for number in range(4):
                store.record(activation(20 + number, owner="greedy", response=b"x" * 10_000))
            assert store.health.behind == {}, "all was given back"
            finishing = [
                asyncio.ensure_future(store.finish(activation(30 + number, owner="greedy", response=b"x" * 30_000)))
                for number in range(4)
            ]
            await asyncio.sleep(0)
            assert list(store.health.behind) == ["greedy"], "records of accepted calls wait, too"
            await asyncio.gather(*finishing)
            assert store.health.behind == {}

    asyncio.run(scenario())
