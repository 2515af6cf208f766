"""The access log: bounded, in groups, whole after a kill, and read back as sessions."""

import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from killed_steps import child_environment, kill_at_each_step

from aliquot.storage.log import AccessLog, LogLimits
from aliquot.storage.log.access_log import read_sessions
from aliquot.storage.log.schema import connect
from aliquot.storage.log.sessions import split
from aliquot.storage.records import FileAccess, Found


def access(number=0, *, time_s=None, tenant="ann", session="s1", function="train", path=None, user=""):
    when = float(number) if time_s is None else time_s
    name = path or f"file-{number}"
    which = ("i1", "photos", name, 100 + number)
    return FileAccess(when, tenant, session, function, *which, "open", 0.5, Found.FETCHED, user)


@pytest.fixture
def log(tmp_path):
    made = AccessLog(tmp_path / "log" / "access.db")
    yield made
    made.close()


def test_what_is_added_is_read_back_as_it_was(log):
    added = [access(number) for number in range(25)]
    for one in added:
        log.add(one)
    log.flush()
    assert [session.accesses for session in log.sessions()] == [added]
    assert log.stats().rows == 25
    assert log.stats().lost == 0


def test_the_last_accesses_are_at_hand_before_they_are_on_disk_and_after_a_restart(tmp_path):
    path = tmp_path / "access.db"
    first = AccessLog(path)
    for number in range(12):
        first.add(access(number))
    assert [one.path for one in first.recent("ann", "s1")] == [f"file-{number}" for number in range(2, 12)]
    assert [one.path for one in first.recent("ann", "s1", k=3)] == ["file-9", "file-10", "file-11"]
    first.close()
    again = AccessLog(path)
    assert [one.path for one in again.recent("ann", "s1")] == [f"file-{number}" for number in range(2, 12)]
    again.forget("ann", "s1")
    assert len(again.recent("ann", "s1")) == 10
    again.close()


def test_a_log_of_the_first_version_is_read_and_goes_on_with_users(tmp_path):
    path = tmp_path / "access.db"
    old = sqlite3.connect(path)
    old.executescript("""
        CREATE TABLE accesses (
            id INTEGER PRIMARY KEY, time_s REAL NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL,
            function TEXT NOT NULL, invocation TEXT NOT NULL, dataset TEXT NOT NULL, path TEXT NOT NULL,
            size INTEGER NOT NULL, operation TEXT NOT NULL, waited_s REAL NOT NULL, found TEXT NOT NULL
        ) STRICT;
        INSERT INTO accesses VALUES (1, 0, 'ann', 's1', 'train', 'i1', 'photos', 'file-0', 100, 'open', 0.5, 'fetched');
        PRAGMA user_version = 1;
    """)
    old.close()
    log = AccessLog(path)
    log.add(access(1, session="s2", user="eve"))
    log.close()
    again = AccessLog(path)
    assert [session.accesses for session in again.sessions()] == [[access(0)], [access(1, session="s2", user="eve")]]
    assert [session.user for session in again.sessions()] == ["", "eve"]
    assert again.stats().lost == 0
    again.close()


def test_sessions_and_tenants_do_not_see_each_other(log):
    log.add(access(1, tenant="ann"))
    log.add(access(2, tenant="bob"))
    log.add(access(3, session="s2"))
    log.add(access(4, session="", function="eval"))
    assert [one.path for one in log.recent("ann", "s1")] == ["file-1"]
    assert [one.path for one in log.recent("bob", "s1")] == ["file-2"]
    assert [one.path for one in log.recent("ann", "", "eval")] == ["file-4"]
    assert log.recent("ann", "", "train") == []


def test_without_a_session_thirty_minutes_of_nothing_part_a_functions_accesses():
    times = [0, 1799, 1799 + 1801, 1799 + 1802]
    found = list(split(access(number, session="", time_s=time) for number, time in enumerate(times)))
    assert [[one.time_s for one in session.accesses] for session in found] == [[0, 1799], [3600, 3601]]
    assert {session.audience for session in found} == {"function/train"}


def test_the_oldest_go_when_there_are_too_many_rows(tmp_path):
    log = AccessLog(tmp_path / "access.db", LogLimits(rows=100))
    for number in range(1000):
        log.add(access(number))
        if number % 50 == 49:
            log.flush()
    kept = [one.size for session in log.sessions() for one in session.accesses]
    assert len(kept) <= 100
    assert kept[-1] == 1099
    assert kept == sorted(kept)
    assert log.stats().rows == len(kept)
    log.close()


def test_the_file_stays_within_its_bytes(tmp_path):
    limit = 2**20
    log = AccessLog(tmp_path / "access.db", LogLimits(bytes=limit))
    for number in range(20_000):
        log.add(access(number, path=f"{'x' * 100}-{number}"))
        if number % 4000 == 3999:
            log.flush()
    log.close()
    assert (tmp_path / "access.db").stat().st_size <= limit
    last = [session.accesses[-1].size for session in read_sessions(tmp_path / "access.db")]
    assert last == [20_099]


def test_many_threads_lose_nothing(log):
    def work(name):
        for number in range(500):
            log.add(access(number, session=name))

    threads = [threading.Thread(target=work, args=(f"s{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    found = {session.audience: [one.size for one in session.accesses] for session in log.sessions()}
    assert found == {f"s{number}": [100 + size for size in range(500)] for number in range(8)}


_WRITER = """
from pathlib import Path
from test_access_log import access
from aliquot.storage.log import AccessLog
log = AccessLog(Path({path!r}))
number = 0
while True:
    log.add(access(number))
    number += 1
    if number % 100 == 0:
        log.flush()
        print(number, flush=True)
"""


def test_what_was_flushed_is_there_after_a_kill(tmp_path):
    path = tmp_path / "access.db"
    script = _WRITER.format(path=str(path))
    writer = subprocess.Popen(
        [sys.executable, "-c", script], env=child_environment(), stdout=subprocess.PIPE, text=True
    )
    flushed = 0
    for line in writer.stdout:
        flushed = int(line)
        if flushed >= 500:
            break
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    log = AccessLog(path)
    sizes = [one.size for session in log.sessions() for one in session.accesses]
    assert sizes == list(range(100, 100 + len(sizes)))
    assert len(sizes) >= flushed
    log.add(access(7, session="after"))
    log.flush()
    assert len(list(log.sessions())) == 2
    log.close()


def test_a_file_that_is_no_database_is_laid_aside(tmp_path):
    path = tmp_path / "access.db"
    path.write_bytes(b"this is not what it should be" * 1000)
    log = AccessLog(path)
    log.add(access(1))
    log.close()
    assert len(list(read_sessions(path))) == 1
    assert path.with_name("access.db.broken").exists()


def test_a_disk_that_takes_nothing_loses_accesses_and_counts_them(log):
    log._connection.execute("PRAGMA query_only = ON")
    log.add(access(1))
    log.flush()
    assert log.stats().lost == 1
    assert [one.path for one in log.recent("ann", "s1")] == ["file-1"]
    log._connection.execute("PRAGMA query_only = OFF")
    log.add(access(2))
    log.flush()
    with sqlite3.connect(log.path) as reader:
        assert reader.execute("SELECT path FROM accesses").fetchall() == [("file-2",)]
    reader.close()


def test_an_old_log_is_opened_without_a_write(tmp_path):
    AccessLog(tmp_path / "log.db").close()
    with closing(connect(tmp_path / "log.db")) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()  # changes with what others write
        AccessLog(tmp_path / "log.db").close()
        assert connection.execute("PRAGMA data_version").fetchone() == before


def test_where_there_is_no_room_for_a_log_it_is_kept_in_memory(tmp_path):
    place = tmp_path / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=True)
    try:
        log = AccessLog(place / "log.db")
        one = access(1)
        log.add(one)
        log.flush()
        assert log.recent("ann", "s1", "train") == [one]
        log.close()
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


_SETS_ASIDE = """
from contextlib import closing
from test_access_log import access
from aliquot.storage.log import AccessLog
from aliquot.storage.log.schema import connect
path = folder / "access.db"
broken = AccessLog(path)
for number in range(2000):
    broken.add(access(number))
broken.flush()
with closing(connect(path)) as other:
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
broken.add(access(1))
broken.flush()  # a good -wal file and an -shm file lie beside it, as after a kill
path.write_bytes(b"no database " * (path.stat().st_size // 12))
arm()
log = AccessLog(path)
log.add(access(2))
log.flush()
"""


def test_at_whichever_step_a_broken_log_is_set_aside_the_next_start_logs_again(tmp_path):
    def check(folder):
        with closing(AccessLog(folder / "access.db")) as log:
            log.add(access(3))
            log.flush()
            assert log.stats().lost == 0
            paths = [one.path for session in log.sessions() for one in session.accesses]
        assert paths in (["file-3"], ["file-2", "file-3"])
        assert (folder / "access.db.broken").exists()

    assert kill_at_each_step(_SETS_ASIDE, tmp_path, check) >= 3
