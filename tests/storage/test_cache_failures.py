"""Failures around the node cache, with real servers, processes, disks and files: no wrong byte, nothing left over."""

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

import msgspec
import pytest
from scripted_origin import CHUNK, SOON_S, ScriptedOrigin, cache_before, content, key, served, until
from web_origin import web_origin

from aliquot.core.errors import InputError
from aliquot.storage.cache import CacheSettings, NodeCache, Urgency
from aliquot.storage.cache.disk.directory import CacheDirectory
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError, RoomError
from aliquot.storage.origins import origin_for
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.records import Dataset, Found
from aliquot.testing.waiting import wait_until


def sha(data):
    return hashlib.sha256(data).hexdigest()


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


def test_while_an_origin_is_down_cached_files_are_served_and_others_fail(directory):
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


def test_while_an_origin_is_silent_cached_files_are_served_and_others_fail(directory):
    origin = ScriptedOrigin({"a": content("a", 5000), "b": content("b", 5000)})
    silence = threading.Event()
    with cache_before(directory, origin, patience_s=0.1, stall_s=0.4) as cache:
        assert served(cache, "a") == content("a", 5000)
        origin.before_stat = origin.before_read = lambda *_: silence.wait(SOON_S)
        for _ in range(3):
            assert served(cache, "a") == content("a", 5000)
        assert cache.stats().datasets["d"].unchecked == 3
        with pytest.raises(OriginError, match="has sent nothing"):
            served(cache, "b")
        silence.set()
        assert served(cache, "b") == content("b", 5000)


def test_a_copy_that_ends_after_its_last_request_was_cancelled_leaves_nothing(directory):
    origin = ScriptedOrigin({"a": content("a", 3 * CHUNK)})
    origin.is_ranged = False
    copied, left = threading.Event(), threading.Event()
    copy = origin.copy

    def slow_to_end(*args):
        copy(*args)
        copied.set()
        left.wait(SOON_S)

    origin.copy = slow_to_end
    with cache_before(directory, origin) as cache:
        future = cache.fetch(key("a"))
        assert copied.wait(SOON_S)
        future.cancel()
        until(lambda: cache.stats().in_flight == 0)
        left.set()
        until(lambda: not cache._requests.progress.running)
        assert list((directory / "arriving").iterdir()) == []
        assert cache.stats().used_bytes == 0


def test_a_read_during_the_commit_is_served(directory):
    origin = ScriptedOrigin({"a": content("a", 5 * CHUNK)})
    last, place = threading.Event(), threading.Event()
    origin.before_read = lambda _, offset: offset == 4 * CHUNK and last.wait(SOON_S)
    confirm = origin.confirm

    def confirm_slowly(listed):
        confirm(listed)
        if origin.confirmed == 2:  # the first confirms the last chunk, because the file is open
            place.wait(SOON_S)

    origin.confirm = confirm_slowly
    with cache_before(directory, origin, whole_bytes=2 * CHUNK) as cache:
        warmed = cache.fetch(key("a"), urgency=Urgency.WARM)
        until(lambda: len(origin.ended) == 4 and len(cache._machine.space.entries[key("a")].digests) == 4)
        with cache.open(key("a")).result(SOON_S) as handle:
            last.set()
            until(lambda: origin.confirmed == 2)
            early = handle.read(0, 10)
            place.set()
            assert early.result(SOON_S) == content("a", 5 * CHUNK)[:10]
            assert warmed.result(SOON_S).listed.size == 5 * CHUNK
        until(lambda: cache.stats().in_flight == 0)


@pytest.fixture
def mounted(tmp_path):
    """A directory with a file system of its own, like a mounted NAS."""
    place = tmp_path / "nas"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=False, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    while not subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True).returncode:
        pass


@pytest.mark.parametrize("restarted", [False, True])
def test_files_of_an_unmounted_nas_stay_in_the_cache(directory, mounted, restarted):
    (mounted / "a").write_bytes(b"a" * 5000)
    (mounted / "b").write_bytes(b"b")
    with cache_before(directory, LocalOrigin(str(mounted), {})) as cache:
        assert served(cache, "a") == b"a" * 5000
        assert set(cache.listing("d").files) == {"a", "b"}
        if not restarted:
            check_without_its_mount(cache, mounted)
    if restarted:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)
        with cache_before(directory, LocalOrigin(str(mounted), {})) as cache:
            check_without_its_mount(cache, mounted)


def check_without_its_mount(cache, place):
    subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    assert list(place.iterdir()) == []
    with cache.open(key("a")).result(SOON_S) as handle:
        assert (handle.found, handle.read(0, 5000).result(SOON_S)) == (Found.CACHED, b"a" * 5000)
    with pytest.raises(OriginError, match="is empty; is it mounted"):
        cache.open(key("b")).result(SOON_S)
    assert set(cache.listing("d").files) == {"a", "b"}
    cache._requests.listings.renew("d", cache._origin_of("d")).done.exception(SOON_S)
    assert set(cache.listing("d").files) == {"a", "b"}
    assert cache.has(key("a"))


def test_a_transfer_survives_a_broken_connection(directory):
    with web_cache(directory, {"a": content("a")}) as (server, cache):
        server.cut_after, server.cuts_left = 50_000, 2
        assert served(cache, "a") == content("a")


@pytest.mark.parametrize("ranges", [True, False])
def test_an_origin_that_keeps_breaking_connections_is_an_error_and_leaves_nothing(directory, ranges):
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
def test_a_file_that_changes_during_its_transfer_is_fetched_again_and_never_mixed(directory, ranges):
    with web_cache(directory, {"a": content("old")}) as (server, cache):
        server.ranges = ranges
        server.gate.clear()
        future = cache.open(key("a"))
        until(lambda: server.bodies)
        server.files["a"] = content("new")
        server.gate.set()
        with future.result(SOON_S) as handle:
            assert handle.read(0, 300_000).result(SOON_S) == content("new")


def test_a_file_that_keeps_changing_is_refused(directory):
    origin = ScriptedOrigin({"a": content("a", 5000)})

    def restless(_path, _offset):
        origin.contents["a"] = os.urandom(5000)

    origin.before_read = restless
    with cache_before(directory, origin) as cache:
        with pytest.raises(ChangedError, match="times during its transfer"):
            served(cache, "a")
        assert cache.stats().used_bytes == 0


def test_a_file_written_in_place_is_only_served_in_one_version(source, directory):
    """A writer of whole versions races with readers: each version is one byte, repeated."""
    path, stop, refused = source / "a", threading.Event(), []
    path.write_bytes(b"0" * 400_000)

    def writes():
        version = 0
        while not stop.is_set():
            version += 1
            with path.open("r+b", buffering=0) as file:
                file.write(bytes([version % 256]) * 400_000)
            time.sleep(0.03 * (1 + len(refused)))  # a slow machine gets more time to read a version

    origin = origin_for(Dataset("d", str(source)))
    writer = threading.Thread(target=writes)
    writer.start()
    seen = set()

    def read():
        try:
            data = served(cache, "a")
        except ChangedError as error:
            refused.append(error)
        else:
            assert data == data[:1] * 400_000
            seen.add(data[:1])
        return seen

    try:
        with cache_before(directory, origin, chunk_bytes=50_000, whole_bytes=1e9) as cache:
            wait_until(read, lambda found: len(found) >= 5, what="five versions of the file", pause_s=0)
    finally:
        stop.set()
        writer.join()


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


# --- many and large -------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path, folders):
    """Real files, a thousand in a folder, with different contents in the folders that the tests read.

    Those of the other folders are links, because a busy disk may take minutes to create as many inodes.
    """
    root = tmp_path / "many"
    for folder in range(folders):
        (root / f"{folder:02}").mkdir(parents=True)
        first = root / f"{folder:02}" / "0000.png"
        for number in range(1000):
            path = root / f"{folder:02}" / f"{number:04}.png"
            if number == 0 or folder in {0, 12}:
                path.write_bytes(b"%d" % (1000 * folder + number))
            else:
                path.hardlink_to(first)
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize(("folders", "warmed"), [(20, 1), pytest.param(100, 100, marks=pytest.mark.long)])
def test_a_real_directory_of_many_thousand_small_files(many, directory, folders, warmed):
    chosen = [f"{number:02}/*" for number in range(warmed)]
    origin = LocalOrigin(str(many), {})
    settings = {"limit_bytes": 2**30, "revalidate_s": 60, "chunk_bytes": 2**22, "whole_bytes": 2**26}
    with cache_before(directory, origin, **settings) as cache:
        assert len(cache.listing("d")) == 1000 * folders
        assert len(cache.listing("d").names("12")) == 1000
        done = cache.warm("d", chosen).result(1200)
        assert (done.files, done.failed) == (1000 * warmed, 0)
        assert served(cache, "12/0007.png") == b"12007"
    with cache_before(directory, origin, **settings) as cache:  # the next cache finds them
        assert cache.stats().datasets["d"].files == 1000 * warmed + (warmed < 13)
        assert served(cache, "00/0999.png") == b"999"
        assert cache.empty() > 0


def test_a_directory_of_many_files_is_listed_as_it_is_read(source):
    for number in range(500):
        (source / f"{number:05}").touch()
    origin = origin_for(Dataset("d", str(source)))
    listed = origin.files()
    assert next(listed).path == "00000"
    assert sum(1 for _ in listed) == 499


def test_a_sparse_file_of_20_gb_is_read_anywhere_at_once_and_takes_no_space(source, directory):
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
        assert cache.stats().used_bytes <= 16 * (2 << 20)  # space is reserved for running transfers
        on_disk = sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
        assert on_disk < 8 << 20
        with pytest.raises(RoomError, match="--cache-size"):
            cache.fetch(key("huge")).result(SOON_S)


# --- hostile --------------------------------------------------------------------------------------------------


def test_paths_outside_a_dataset_are_refused(source, directory, tmp_path):
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


def test_failed_transfers_leave_no_open_descriptors(directory):
    def fds():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = fds()
    for _ in range(2):
        with web_cache(directory, {"a": content("a"), "b": content("b")}) as (server, cache):
            server.cut_after, server.cuts_left = 1000, -1
            futures = [cache.open(key("a")), cache.fetch(key("b"))]
            futures[1].cancel()
            with pytest.raises(OriginError):
                futures[0].result(SOON_S)
            server.cut_after = None
            with cache.open(key("a")).result(SOON_S) as handle:
                assert handle.found is Found.FETCHED
    # The test's own web server closes its connections in threads of its own.
    wait_until(fds, lambda count: count <= before, what="all descriptors to be closed")
