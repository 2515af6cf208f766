"""After `kill -9` at any moment, all acknowledged writes are in the file, and the sequence of writes has no gaps.

Run as a program (`PYTHONPATH=tests/support python tests/live/test_store_crash.py DIRECTORY FIRST`), this file is the
victim. It writes at full speed and prints each acknowledged write.
"""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

from places import SUPPORT
from stored import accepted, activation, journal

from aliquot.live.store import ActivationQuery, Delete, Document, Put, SqliteStore, read_journal

KILLS = int(os.environ.get("ALIQUOT_KILLS", "10"))  # set it to a hundred after a change
BEHIND = 1_000_000  # numbers from here on are records written behind
BODY = b"x" * 700


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write_behind(store, number):
    """Write a record and a journal step in turn. The file may have at most one record more than steps."""
    while True:
        for _ in range(random.randrange(200)):
            number += 1
            store.record(activation(BEHIND + number, response=BODY))
            store.journal(b"%d" % number)
        if random.random() < 0.1:
            await store.flush()
            say("flushed", number)
        await asyncio.sleep(random.choice([0, 0, 0.001]))


async def write_durably(store, numbers):
    for number in numbers:
        await store.accept(accepted(number))
        say("accepted", number)
        await store.mark_started(f"{number:032x}")
        say("started", number)
        if number % 3:
            await store.finish(activation(number))
            say("finished", number)
        await store.put("action", Document("ns", str(number % 8), b"%d " % number + BODY * (number % 7)))
        say("put", number)
        # Two documents that are always written and deleted together.
        pair = [Document("ns", f"{number % 8}/{part}", b"%d" % number) for part in "ab"]
        await store.apply([Put("pair", document) for document in pair])
        if number % 2:
            await store.apply([Delete("pair", document.namespace, document.name) for document in pair])


async def victim(directory, first):
    store = await SqliteStore.open(directory)
    store.open_segment(b"%d" % first)
    await asyncio.gather(
        write_behind(store, first), *(write_durably(store, range(first + task, 10**9, 8)) for task in range(8))
    )


def kill_one(directory, first, random):
    """Kill a victim at a random moment, and return its acknowledged writes."""
    command = [sys.executable, __file__, directory, str(first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SUPPORT)})
    lines = [process.stdout.readline()]  # it has begun to write
    threading.Timer(random.uniform(0, 0.15), process.send_signal, [signal.SIGKILL]).start()
    lines += process.stdout.readlines()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    whole = [line for line in lines if line.endswith(b"\n")]
    return [(what, int(number)) for what, number in (line.decode().split() for line in whole)]


async def check(store, promised):
    queue = {int(one.id, 16): one for one in await store.unfinished()}
    found = await store.activations(ActivationQuery("ns", limit=10**9, summaries=True))  # all at once is too large
    ends = {int(one.id, 16) for one in found}
    for what, number in promised:
        if what == "accepted":
            assert (number in queue) != (number in ends)
        elif what == "started":
            assert number in ends or queue[number].started
        elif what == "finished":
            assert number in ends
    # Each document is the last acknowledged one, or a later one that was being written. It is whole in any case.
    for document in await store.scan("action"):
        number, _, body = document.body.partition(b" ")
        assert body == BODY * (int(number) % 7)
        assert int(number) >= max(
            (n for what, n in promised if what == "put" and str(n % 8) == document.name), default=0
        )
    pairs: dict[str, list[bytes]] = {}
    for document in await store.scan("pair"):
        pairs.setdefault(document.name.partition("/")[0], []).append(document.body)
    assert all(len(bodies) == 2 and bodies[0] == bodies[1] for bodies in pairs.values())
    return sorted(end - BEHIND for end in ends if end >= BEHIND)


async def look(directory, promised):
    store = await SqliteStore.open(directory)
    records = await check(store, promised)
    entries = await journal(store)
    await store.close()
    return records, entries


def test_what_was_acknowledged_outlives_any_kill_and_nothing_has_holes(tmp_path):
    chance = random.Random(4)
    first, old_records, old_entries = 0, [], []
    for kill in range(1, KILLS + 1):
        promised = kill_one(tmp_path, first, chance)
        alone = [(entry.segment, entry.number, entry.body) for entry in read_journal(tmp_path)]
        records, entries = asyncio.run(look(tmp_path, promised))
        assert entries == alone
        assert records[: len(old_records)] == old_records
        assert entries[: len(old_entries)] == old_entries
        # The new records are the first ones that this process recorded, at least up to the last flush.
        new = len(records) - len(old_records)
        assert records[len(old_records) :] == [first + 1 + n for n in range(new)]
        assert first + new >= max((number for what, number in promised if what == "flushed"), default=0)
        # The same holds for the journal. Records and steps were written in turn, so only the last step may be missing.
        steps = entries[len(old_entries) :]
        assert steps == [(kill, n, b"%d" % (first + n)) for n in range(len(steps))]
        assert len(steps) - 1 in {new, new - 1}
        old_records, old_entries = records, entries
        first = max(first + new, *(number for _, number in promised)) + 100


def test_the_settings_that_survive_a_power_cut(tmp_path):
    async def scenario():
        store = await SqliteStore.open(tmp_path)
        connection = store._batches._connection
        values = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        await store.close()
        return values

    assert asyncio.run(scenario()) == ["wal", 2]  # 2: the log is synced at every commit
    with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA application_id").fetchone() == (0x416C6971,)


if __name__ == "__main__":
    asyncio.run(victim(Path(sys.argv[1]), int(sys.argv[2])))
