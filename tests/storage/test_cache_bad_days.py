"""Bad days of the node cache, with real servers, processes, disks and files: no wrong byte, and nothing left over."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from scripted_origin import SOON_S, ScriptedOrigin, cache_before, key, until
from web_origin import web_origin

from aliquot.core.errors import InputError
from aliquot.storage.cache import CacheSettings, NodeCache, Urgency
from aliquot.storage.cache.disk import Disk
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError, RoomError
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset, Found


def content(seed, size=300_000):
    return random.Random(seed).randbytes(size)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def served(cache, path):
    with cache.open(key(path)).result(SOON_S) as handle:
        return handle.read(0, handle.listed.size).result(SOON_S)


@contextmanager
def web_cache(directory, files, **settings):
    with web_origin(files) as (server, url):
        origin = origin_for(Dataset("d", url))
        try:
            with cache_before(directory, origin, **{"chunk_bytes": 100_000, "whole_bytes": 1e9, **settings}) as cache:
                yield server, cache
        finally:
            origin.close()


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    root.mkdir()
    return root


# --- the origin -----------------------------------------------------------------------------------------------


def test_an_origin_that_is_down_is_said_to_be_and_what_is_here_is_served(directory):
    with web_cache(directory, {"a": content("a"), "b": content("b")}) as (server, cache):
        assert served(cache, "a") == content("a")
        server.status = 503
        assert served(cache, "a") == content("a")
        with pytest.raises(OriginError, match="503"):
            served(cache, "b")
        assert cache.stats().datasets["d"].unchecked == 1
        assert cache.stats().used_bytes == 300_000
        server.status = None
        assert served(cache, "b") == content("b")


def test_an_origin_that_says_nothing_is_given_up_and_what_is_here_is_served_meanwhile(directory):
    origin = ScriptedOrigin({"a": content("a", 5000), "b": content("b", 5000)})
    silence = threading.Event()
    with cache_before(directory, origin, patience_s=0.1, stall_s=0.4) as cache:
        assert served(cache, "a") == content("a", 5000)
        origin.before_stat = origin.before_read = lambda *_: silence.wait(SOON_S)
        for _ in range(3):
            assert served(cache, "a") == content("a", 5000)
        assert cache.stats().datasets["d"].unchecked == 3
        with pytest.raises(OriginError, match="has said nothing"):
            served(cache, "b")
        silence.set()
        assert served(cache, "b") == content("b", 5000)


def test_a_link_that_hangs_does_not_hold_up_another(directory):
    hanging, other = ScriptedOrigin({str(n): b"x" for n in range(30)}), ScriptedOrigin({"b": b"b"}, link="other")
    silence = threading.Event()
    hanging.before_stat = lambda _: silence.wait(SOON_S)
    with cache_before(directory, {"d": hanging, "e": other}) as cache:
        tickets = [cache.open(key(str(number))) for number in range(30)]
        with cache.open(key("b", "e")).result(SOON_S) as handle:
            assert handle.read(0, 1).result(SOON_S) == b"b"
        silence.set()
        for ticket in tickets:
            ticket.result(SOON_S).close()


def test_a_connection_that_is_cut_is_taken_up_again(directory):
    with web_cache(directory, {"a": content("a")}) as (server, cache):
        server.cut_after, server.cuts_left = 50_000, 2
        assert served(cache, "a") == content("a")


@pytest.mark.parametrize("ranges", [True, False])
def test_an_origin_that_goes_half_way_is_an_error_and_leaves_nothing(directory, ranges):
    with web_cache(directory, {"a": content("a")}) as (server, cache):
        server.ranges = ranges
        server.cut_after, server.cuts_left = 50_000, -1
        with pytest.raises(OriginError):
            served(cache, "a")
        assert cache.stats().used_bytes == 0
        assert list((directory / "arriving").iterdir()) == []
        server.cut_after = None
        assert served(cache, "a") == content("a")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changes_while_it_is_brought_is_brought_again_and_never_mixed(directory, ranges):
    with web_cache(directory, {"a": content("old")}) as (server, cache):
        server.ranges = ranges
        server.gate.clear()
        ticket = cache.open(key("a"))
        until(lambda: server.bodies)
        server.files["a"] = content("new")
        server.gate.set()
        with ticket.result(SOON_S) as handle:
            assert handle.read(0, 300_000).result(SOON_S) == content("new")


def test_a_file_that_never_stands_still_is_refused(directory):
    origin = ScriptedOrigin({"a": content("a", 5000)})

    def restless(_path, _offset):
        origin.contents["a"] = os.urandom(5000)

    origin.before_read = restless
    with cache_before(directory, origin) as cache:
        with pytest.raises(ChangedError, match="times while it was brought"):
            served(cache, "a")
        assert cache.stats().used_bytes == 0


def test_a_file_written_to_in_place_is_only_ever_served_in_one_version(source, directory):
    """A writer of whole versions races with readers: each version is one byte, repeated."""
    path, stop = source / "a", threading.Event()
    path.write_bytes(b"0" * 400_000)

    def writes():
        version = 0
        while not stop.is_set():
            version += 1
            with path.open("r+b", buffering=0) as file:
                file.write(bytes([version % 256]) * 400_000)
            time.sleep(0.03)

    origin = origin_for(Dataset("d", str(source)))
    writer = threading.Thread(target=writes)
    writer.start()
    seen, refused = set(), 0
    try:
        with cache_before(directory, origin, chunk_bytes=50_000, whole_bytes=1e9) as cache:
            while len(seen) < 5:
                try:
                    data = served(cache, "a")
                except ChangedError:
                    refused += 1
                    continue
                assert data == data[:1] * 400_000
                seen.add(data[:1])
    finally:
        stop.set()
        writer.join()


# --- the disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Eight mebibytes of memory as a file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_others_have_filled_makes_the_cache_give_way_and_no_reader_suffer(source, small_disk):
    files = {str(number): content(number, 1_000_000) for number in range(12)}
    for name, data in files.items():
        (source / name).write_bytes(data)
    origin = origin_for(Dataset("d", str(source)))
    settings = {"limit_bytes": 100_000_000, "chunk_bytes": 250_000, "whole_bytes": 1e9, "revalidate_s": 60}
    with cache_before(small_disk / "cache", origin, **settings) as cache:
        reader = cache.open(key("0")).result(SOON_S)
        for name, data in files.items():  # more than the disk has, though not more than the cache may
            assert served(cache, name) == data
        assert cache.stats().datasets["d"].evicted > 0
        (small_disk / "of another").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
        for name in ("5", "6", "7"):
            assert served(cache, name) == files[name]
        cache.empty()
        (small_disk / "more").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
        with pytest.raises(RoomError, match="disk is full"):
            cache.fetch(key("8"), urgency=Urgency.DEMAND).result(SOON_S)
        assert sha(os.pread(reader.fd, 2_000_000, 0)) == sha(files["0"])
        reader.close()
        (small_disk / "more").unlink()
        (small_disk / "of another").unlink()
        assert served(cache, "8") == files["8"]


def test_a_directory_that_is_wiped_while_in_use_is_filled_again(directory):
    origin = ScriptedOrigin({name: content(name, 5000) for name in "abc"})
    with cache_before(directory, origin, revalidate_s=60, whole_bytes=2000) as cache:
        assert served(cache, "a") == content("a", 5000)
        until(lambda: cache.has(key("a")))
        reader = cache.open(key("a")).result(SOON_S)
        partly = cache.open(key("b")).result(SOON_S)
        assert partly.read(1000, 10).result(SOON_S) == content("b", 5000)[1000:1010]
        shutil.rmtree(directory)
        assert os.pread(reader.fd, 6000, 0) == content("a", 5000)
        assert partly.read(0, 5000).result(SOON_S) == content("b", 5000)
        reader.close()
        partly.close()
        for name in "abc":
            assert served(cache, name) == content(name, 5000)
        assert cache.fetch(key("c")).result(SOON_S)
    with cache_before(directory, origin) as cache:
        assert cache.has(key("c"))
        assert served(cache, "c") == content("c", 5000)


def test_a_transfer_whose_directory_is_wiped_begins_again(directory):
    origin = ScriptedOrigin({"a": content("a", 5000)})
    wiped = threading.Event()

    def wipes(_path, offset):
        if offset == 3000 and not wiped.is_set():
            shutil.rmtree(directory)
            wiped.set()

    origin.before_read = wipes
    with cache_before(directory, origin) as cache:
        assert served(cache, "a") == content("a", 5000)
        assert wiped.is_set()


def test_a_file_that_somebody_cut_short_is_fetched_again(directory):
    origin = ScriptedOrigin({"a": content("a", 5000)})
    with cache_before(directory, origin, revalidate_s=60) as cache:
        served(cache, "a")
        os.truncate(next((directory / "files").glob("*/*")), 100)
        assert served(cache, "a") == content("a", 5000)


def test_verify_finds_and_drops_what_is_not_what_was_fetched(directory):
    origin = ScriptedOrigin({"a": content("a", 5000), "b": content("b", 5000)})
    with cache_before(directory, origin, revalidate_s=60) as cache:
        served(cache, "a")
        served(cache, "b")
        for path in (directory / "files").glob("*/*"):
            if path.read_bytes() == content("a", 5000):
                path.write_bytes(content("wrong", 5000))
        assert cache.verify() == [key("a")]
        assert cache.verify() == []
        assert served(cache, "a") == content("a", 5000)


# --- crashes --------------------------------------------------------------------------------------------------


def test_killed_in_the_middle_of_transfers_it_comes_back_with_whole_files_only(source, directory):
    chance = random.Random(7)
    sums = {}
    for number in range(40):
        data = chance.randbytes(chance.choice([10, 5000, 300_000, 700_000]))
        (source / f"{number}.bin").write_bytes(data)
        sums[f"{number}.bin"] = sha(data)
    origin = origin_for(Dataset("d", str(source)))
    program = str(Path(__file__).with_name("killed_cache.py"))
    found = 0
    for seed in range(4):
        command = [sys.executable, program, str(source), str(directory), str(seed)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with cache_before(directory, origin, limit_bytes=6_000_000, whole_bytes=1e9) as cache:
            assert not list((directory / "arriving").glob("*"))
            here = [name for name in sums if cache.has(key(name))]
            found += len(here)
            assert cache.verify() == []
            for name in here:
                assert sha(served(cache, name)) == sums[name]
            assert len(list((directory / "files").glob("*/*"))) == len(here)
    assert found > 10


def test_a_line_that_a_crash_cut_off_and_files_that_nobody_knows_are_passed_over(directory):
    origin = ScriptedOrigin({name: content(name, 5000) for name in "abc"})
    with cache_before(directory, origin) as cache:
        for name in "abc":
            served(cache, name)
    index = directory / "index"
    index.write_bytes(index.read_bytes()[:-40])
    (directory / "files" / "00").mkdir(exist_ok=True)
    (directory / "files" / "00" / "stray").write_bytes(b"stray")
    (directory / "arriving").mkdir(exist_ok=True)
    (directory / "arriving" / "half").write_bytes(b"half")
    with cache_before(directory, origin) as cache:
        assert [name for name in "abc" if cache.has(key(name))] == ["a", "b"]
        assert len(list((directory / "files").glob("*/*"))) == 2
        for name in "abc":
            assert served(cache, name) == content(name, 5000)


def test_after_the_machine_has_crashed_files_are_compared_before_they_are_served(directory, monkeypatch, tmp_path):
    origin = ScriptedOrigin({name: content(name, 5000) for name in "ab"})
    with cache_before(directory, origin) as cache:
        for name in "ab":
            served(cache, name)
    for path in (directory / "files").glob("*/*"):
        if path.read_bytes() == content("a", 5000):
            path.write_bytes(bytes(5000))  # what a file system may leave of a file that was not on the disk yet
    boot = tmp_path / "boot"
    boot.write_text("another")
    monkeypatch.setattr("aliquot.storage.cache.disk._BOOT", boot)
    with cache_before(directory, origin, revalidate_s=60) as cache:
        begun = len(origin.begun)
        assert served(cache, "a") == content("a", 5000)
        assert served(cache, "b") == content("b", 5000)
        assert {path for path, _ in origin.begun[begun:]} == {"a"}


def test_a_lower_limit_holds_from_the_next_start(directory):
    origin = ScriptedOrigin({name: content(name, 5000) for name in "abcd"})
    with cache_before(directory, origin) as cache:
        for name in "abcd":
            served(cache, name)
    with cache_before(directory, origin, limit_bytes=11_000) as cache:
        assert cache.stats().used_bytes == 10_000


def test_two_processes_never_share_a_directory(directory):
    origin = ScriptedOrigin({})
    with cache_before(directory, origin), pytest.raises(InputError, match="another process uses it"):
        NodeCache(directory, CacheSettings(1000), lambda _: origin)
    Disk(directory).close()


# --- many and large -------------------------------------------------------------------------------------------


def test_a_hundred_thousand_small_files(directory):
    origin = ScriptedOrigin({f"{n % 100:02}/{n:06}.png": b"%d" % n for n in range(100_000)})
    with cache_before(directory, origin, relist_s=60, revalidate_s=60) as cache:
        listing = cache.listing("d")
        assert len(listing) == 100_000
        assert len(listing.names("42")) == 1000
        assert cache.warm("d", ["07/00*.png"]).result(60).files == 100
        assert served(cache, "42/000042.png") == b"42"
        assert cache.has(key("07/009907.png"))
        assert not cache.has(key("07/010007.png"))


def test_a_directory_of_many_files_is_listed_as_it_is_read(source):
    for number in range(500):
        (source / f"{number:05}").touch()
    origin = origin_for(Dataset("d", str(source)))
    listed = origin.files()
    assert next(listed).path == "00000"
    assert sum(1 for _ in listed) == 499


def test_a_sparse_file_of_20_gb_is_read_anywhere_at_once_and_takes_no_room(source, directory):
    size, marks = 20 << 30, {0: b"begin", 10 << 30: b"middle", (20 << 30) - 3: b"end"}
    with (source / "huge").open("wb") as file:
        file.truncate(size)
        for offset, mark in marks.items():
            file.seek(offset)
            file.write(mark)
    origin = origin_for(Dataset("d", str(source)))
    settings = {"limit_bytes": 64 << 20, "chunk_bytes": 2 << 20, "revalidate_s": 60}
    with cache_before(directory, origin, **settings) as cache, cache.open(key("huge")).result(SOON_S) as handle:
        for offset, mark in marks.items():
            assert handle.read(offset, len(mark)).result(SOON_S) == mark
        assert handle.read(5 << 30, 1 << 20).result(SOON_S) == bytes(1 << 20)
        assert cache.stats().used_bytes <= 16 * (2 << 20)  # what is on its way has room set aside
        on_disk = sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
        assert on_disk < 8 << 20
        with pytest.raises(RoomError, match="--cache-size"):
            cache.fetch(key("huge")).result(SOON_S)


# --- hostile --------------------------------------------------------------------------------------------------


def test_a_path_that_climbs_out_reads_nothing(source, directory, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (source / "link").symlink_to(tmp_path / "secret")
    (source / "a").write_bytes(b"a")
    origin = origin_for(Dataset("d", str(source)))
    with cache_before(directory, origin) as cache:
        for path in ("../secret", "a/../../secret", str(tmp_path / "secret"), "link", "./a", "a\0"):
            with pytest.raises(PathError):
                cache.open(key(path)).result(SOON_S)
        with pytest.raises(AbsentError):
            cache.open(key("..%2fsecret")).result(SOON_S)
        assert list(cache.listing("d").files) == ["a"]
        assert served(cache, "a") == b"a"
        assert cache.stats().datasets["d"].files == 1


def test_nothing_is_left_open_after_a_bad_day(directory):
    def fds():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = fds()
    for _ in range(2):
        with web_cache(directory, {"a": content("a"), "b": content("b")}) as (server, cache):
            server.cut_after, server.cuts_left = 1000, -1
            tickets = [cache.open(key("a")), cache.fetch(key("b"))]
            tickets[1].cancel()
            with pytest.raises(OriginError):
                tickets[0].result(SOON_S)
            server.cut_after = None
            with cache.open(key("a")).result(SOON_S) as handle:
                assert handle.found is Found.FETCHED
    assert fds() == before
