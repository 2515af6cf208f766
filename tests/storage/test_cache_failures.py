"""Failures around the node cache, with real servers, processes, disks and files: no wrong byte, nothing left over."""

import os
import subprocess
import threading
import time

import pytest
from scripted_origin import CHUNK, SOON_S, ScriptedOrigin, cache_before, content, key, served, until
from web_origin import web_cache

from aliquot.storage.cache import Urgency
from aliquot.storage.errors import ChangedError, OriginError
from aliquot.storage.origins import origin_for
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.records import Dataset, Found
from aliquot.testing.waiting import wait_until


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
