"""Versions of files: whatever happens meanwhile, a handle reads bytes of the version it was opened in, or fails."""

import os
import random
import threading
import time

import pytest
from scripted_origin import SOON_S, ScriptedOrigin, cache_before, held, key, until

from aliquot.storage.cache import Urgency
from aliquot.storage.cache.disk.files import file_of, read_at
from aliquot.storage.errors import ChangedError, OriginError
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset, Listed


def content(seed, size=10_500):
    return random.Random(seed).randbytes(size)


def served(cache, path):
    with cache.open(key(path)).result(SOON_S) as handle:
        return handle.read(0, handle.listed.size).result(SOON_S)


@pytest.fixture
def origin():
    return ScriptedOrigin({"a": content("a"), "b": content("b")})


def test_after_a_power_cut_a_file_of_a_failing_origin_is_served_only_if_it_is_intact(
    origin, directory, monkeypatch, tmp_path
):
    with cache_before(directory, origin) as cache:
        for name in "ab":
            served(cache, name)
    for path in (directory / "files").glob("*/*"):
        if path.read_bytes() == content("a"):
            path.write_bytes(bytes(10_500))  # a file system may leave zeros of a file that was not flushed
    boot = tmp_path / "boot"
    boot.write_text("another")
    monkeypatch.setattr("aliquot.storage.cache.disk.directory._BOOT_ID", boot)
    monkeypatch.setattr("aliquot.storage.cache.transfers.failures.RETRY_S", (0.0, 0.0, 0.0))
    origin.down = True
    with cache_before(directory, origin) as cache:
        with pytest.raises(OriginError, match="is down"):
            served(cache, "a")
        assert served(cache, "b") == content("b")


def test_the_time_of_checking_a_file_does_not_count_as_silence_of_its_origin(origin, directory, monkeypatch, tmp_path):
    with cache_before(directory, origin) as cache:
        served(cache, "a")
    boot = tmp_path / "boot"
    boot.write_text("another")
    monkeypatch.setattr("aliquot.storage.cache.disk.directory._BOOT_ID", boot)

    def slow(*args):
        time.sleep(0.1)
        return read_at(*args)

    monkeypatch.setattr("aliquot.storage.cache.disk.files.read_at", slow)  # 11 chunks
    with cache_before(directory, origin, patience_s=0.5, stall_s=0.8) as cache:
        assert served(cache, "a") == content("a")
        assert cache.stats().datasets["d"].unchecked == 0


@pytest.mark.parametrize("moment", ["acquire", "release"])
def test_a_chunk_freed_during_a_read_is_never_served_as_zeros(origin, directory, monkeypatch, moment):
    settings = {"whole_bytes": 2000, "limit_bytes": 3000, "revalidate_s": 60}
    with cache_before(directory, origin, **settings) as cache, cache.open(key("a")).result(SOON_S) as handle:
        assert handle.read(1, 10).result(SOON_S) == content("a")[1:11]
        file, reader = file_of(handle.entry), threading.current_thread()
        plain = getattr(file, moment)

        def flows_by(*args):
            if threading.current_thread() is not reader:
                return plain(*args)
            monkeypatch.setattr(file, moment, plain)
            before = handle.entry.freed_count
            for offset in (9001, 7001, 5001, 3001):
                handle.read(offset, 10).result(SOON_S)
            assert handle.entry.freed_count > before
            if moment == "release":  # and the chunk is fetched again before the read is checked
                assert handle.read(2, 10).result(SOON_S) == content("a")[2:12]
            return plain(*args)

        monkeypatch.setattr(file, moment, flows_by)
        assert handle.read(1, 10).result(SOON_S) == content("a")[1:11]


def test_a_copy_does_not_replace_a_file_that_is_read_in_parts(origin, directory):
    with cache_before(directory, origin, whole_bytes=2000) as cache:
        with cache.open(key("a")).result(SOON_S) as handle:
            assert handle.read(5000, 10).result(SOON_S) == content("a")[5000:5010]
            origin.is_ranged = False
            assert cache.fetch(key("a"), urgency=Urgency.DEMAND).result(SOON_S)
            assert served(cache, "a") == content("a")
            assert handle.read(5000, 10).result(SOON_S) == content("a")[5000:5010]
            with pytest.raises(ChangedError):
                handle.read(8000, 10).result(SOON_S)
        assert cache.verify() == []
        on_disk = sum(path.stat().st_blocks * 512 for path in directory.glob("files/*/*"))
        assert cache.stats().used_bytes == min(10_500, on_disk)


def test_a_read_of_an_old_version_gets_no_byte_of_the_new_one(origin, directory):
    answered = threading.Event()
    with cache_before(directory, origin, whole_bytes=2000, workers=1) as cache:
        with cache.open(key("a")).result(SOON_S) as old:
            assert old.read(5000, 10).result(SOON_S) == content("a")[5000:5010]
            origin.before_stat = lambda _: answered.wait(SOON_S)
            origin.contents["a"] = content("new")
            asked = len(origin.stats)
            future = cache.open(key("a"))
            until(lambda: len(origin.stats) > asked)
            reading = old.read(8000, 10)
            answered.set()
            with pytest.raises(ChangedError):
                reading.result(SOON_S)
            with future.result(SOON_S) as new:
                assert new.read(8000, 10).result(SOON_S) == content("new")[8000:8010]
            assert old.read(5000, 10).result(SOON_S) == content("a")[5000:5010]
        cache.empty()
        assert cache.stats().used_bytes == 0  # nothing is left of the old version


def test_a_file_that_was_listed_as_empty_is_opened_with_its_current_content(directory, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").touch()
    os.utime(source / "a", (time.time() - 60, time.time() - 60))
    with cache_before(directory, origin_for(Dataset("d", str(source))), revalidate_s=60) as cache:
        assert cache.listing("d").find("a").size == 0
        (source / "a").write_bytes(b"by now")
        assert served(cache, "a") == b"by now"


def test_an_open_after_a_change_of_origin_gets_nothing_of_the_old_one(origin, directory):
    turnstile = held(origin)
    origins = {"d": origin}
    with cache_before(directory, origins) as cache:
        before = cache.open(key("a"))
        until(lambda: origin.begun)
        origins["d"] = ScriptedOrigin({"a": content("other")}, link="other")
        assert served(cache, "a") == content("other")
        with pytest.raises(ChangedError, match="another origin now"):
            before.result(SOON_S)
        turnstile.release(100)


class _Alike(ScriptedOrigin):
    """An origin whose files have the same version string as those of another."""

    def _listed_as(self, path, content):
        return Listed(path, len(content), "1")


def test_a_handle_on_a_file_of_the_old_origin_reads_nothing_of_the_new_one(directory):
    origins = {"d": _Alike({"a": content("a")})}
    with cache_before(directory, origins, whole_bytes=2000) as cache, cache.open(key("a")).result(SOON_S) as old:
        assert old.read(5000, 10).result(SOON_S) == content("a")[5000:5010]
        other = origins["d"] = _Alike({"a": content("other")}, link="other")
        answered = threading.Event()
        other.before_stat = lambda _: answered.wait(SOON_S)
        future = cache.open(key("a"))
        until(lambda: other.stats)
        with pytest.raises(ChangedError):
            old.read(8000, 10).result(SOON_S)
        answered.set()
        with future.result(SOON_S) as new:
            assert new.read(8000, 10).result(SOON_S) == content("other")[8000:8010]


def test_a_copy_that_exceeds_the_announced_size_is_stopped(origin, directory):
    origin.is_ranged = False
    sent = []

    def endless(listed, _target, go):
        for size in range(0, 100 * listed.size, 1000):
            sent.append(size)
            go(size)

    origin.copy = endless
    with cache_before(directory, origin) as cache:
        with pytest.raises(ChangedError):
            served(cache, "a")
        assert max(sent) == 11_000
        assert cache.stats().used_bytes == 0
