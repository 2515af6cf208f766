"""Failing disks and crashes under the node cache: what it serves is whole, and what it loses is fetched again."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from scripted_origin import SOON_S, ScriptedOrigin, cache_before, content, key, served, until

from aliquot.core.errors import InputError
from aliquot.storage.cache import CacheSettings, NodeCache, Urgency
from aliquot.storage.cache.disk.directory import CacheDirectory
from aliquot.storage.errors import RoomError
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset


def sha(data):
    return hashlib.sha256(data).hexdigest()


# --- the disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of eight mebibytes in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_shrinks_the_cache_and_harms_no_reader(source, small_disk):
    files = {str(number): content(number, 1_000_000) for number in range(12)}
    for name, data in files.items():
        (source / name).write_bytes(data)
    origin = origin_for(Dataset("d", str(source)))
    settings = {"limit_bytes": 100_000_000, "chunk_bytes": 250_000, "whole_bytes": 1e9, "revalidate_s": 60}
    with cache_before(small_disk / "cache", origin, **settings) as cache:
        reader = cache.open(key("0")).result(SOON_S)
        for name, data in files.items():  # more than the disk holds, but less than the limit of the cache
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


def test_a_cache_whose_directory_is_deleted_is_filled_again(directory):
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


def test_a_transfer_whose_directory_is_deleted_begins_again(directory):
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


def test_a_truncated_file_is_fetched_again(directory):
    origin = ScriptedOrigin({"a": content("a", 5000)})
    with cache_before(directory, origin, revalidate_s=60) as cache:
        served(cache, "a")
        os.truncate(next((directory / "files").glob("*/*")), 100)
        assert served(cache, "a") == content("a", 5000)


def test_verify_finds_and_drops_modified_files(directory):
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


def test_a_cache_killed_during_transfers_restarts_with_whole_files_only(source, directory):
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
        for _ in range(chance.randrange(2, 8)):
            assert process.stdout.readline() == "fetched\n"
        time.sleep(chance.uniform(0.0, 0.05))
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


@pytest.mark.parametrize(
    ("method", "number", "kept"),
    [
        pytest.param("remove", 4, 5, id="while files are removed that the index still lists"),
        pytest.param("move", 4, 3, id="between a line of the index and the place of its file"),
        pytest.param("rename", 9, 8, id="between a new index and its place"),
    ],
)
def test_a_cache_killed_between_two_changes_on_disk_restarts_with_whole_files_only(
    source, directory, method, number, kept
):
    names = [f"{number}.bin" for number in range(8)]
    for name in names:
        (source / name).write_bytes(content(name, 100_000))
    program = str(Path(__file__).with_name("killed_in_between.py"))
    command = [sys.executable, program, str(source), str(directory), method, str(number)]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    with cache_before(directory, origin_for(Dataset("d", str(source))), whole_bytes=1e9) as cache:
        assert sum(cache.has(key(name)) for name in names) == kept
        assert cache.verify() == []
        assert len(list((directory / "files").glob("*/*"))) == kept
        assert not list(directory.glob("index-*"))
        for name in names:
            assert served(cache, name) == content(name, 100_000)


OLD_INDEX_LINE = (
    '{"name":"5bb1d2e0c4f0a9d1-18","dataset":"d","listed":{"path":"a","size":5,"version":"1","checksum":"",'
    '"mtime_s":1.5},"origin":"%s","chunk_bytes":1000,"digests":"NhCmhg==","disk_bytes":5,"reload_s":0.25,"uses":3,'
    '"boot":"another"}\n'
)


def test_a_directory_written_by_an_earlier_release_is_read(directory):
    origin = ScriptedOrigin({})
    old = directory / "files" / "5b" / "5bb1d2e0c4f0a9d1-18"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"hello")
    (directory / "index").write_text(OLD_INDEX_LINE % origin.identity)
    listing = directory / "listings" / f"{hashlib.blake2b(b'd', digest_size=16).hexdigest()}.listing"
    listing.parent.mkdir()
    files = [{"path": "a", "size": 5, "version": "1", "checksum": "", "mtime_s": 1.5}]
    listing.write_bytes(msgspec.msgpack.encode({"origin": origin.identity, "files": files}))
    origin.down = True
    with cache_before(directory, origin) as cache:
        assert list(cache.listing("d").files) == ["a"]
        assert served(cache, "a") == b"hello"
        assert cache.stats().datasets["d"].files == 1
        assert cache._machine.space.entries[key("a")].opens == 4


def test_a_truncated_index_line_and_unknown_files_are_ignored(directory):
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


def test_after_a_crash_of_the_machine_files_are_checked_before_they_are_served(directory, monkeypatch, tmp_path):
    origin = ScriptedOrigin({name: content(name, 5000) for name in "ab"})
    with cache_before(directory, origin) as cache:
        for name in "ab":
            served(cache, name)
    for path in (directory / "files").glob("*/*"):
        if path.read_bytes() == content("a", 5000):
            path.write_bytes(bytes(5000))  # a file system may leave zeros of a file that was not flushed
    boot = tmp_path / "boot"
    boot.write_text("another")
    monkeypatch.setattr("aliquot.storage.cache.disk.directory._BOOT_ID", boot)
    with cache_before(directory, origin, revalidate_s=60) as cache:
        begun = len(origin.begun)
        assert served(cache, "a") == content("a", 5000)
        assert served(cache, "b") == content("b", 5000)
        assert {path for path, _ in origin.begun[begun:]} == {"a"}


def test_a_lower_limit_takes_effect_at_the_next_start(directory):
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
    CacheDirectory(directory).close([])
