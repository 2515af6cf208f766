"""The node cache in front of a scripted origin: parts of files, handles, and whole datasets."""

import asyncio
import gc
import os

import pytest
from scripted_origin import (
    CHUNK,
    SOON_S,
    ScriptedOrigin,
    all_of,
    cache_before,
    held,
    key,
    opened,
    small_content,
    until,
)

from aliquot.storage.errors import AbsentError, ChangedError, RoomError
from aliquot.storage.records import Found
from aliquot.testing.waiting import wait_on_loop

# --- parts ----------------------------------------------------------------------------------------------------


def test_reading_a_large_file_fetches_exactly_the_requested_chunks(origin, directory):
    with cache_before(directory, origin, whole_bytes=2000, revalidate_s=60) as cache:
        with cache.open(key("a")).result(SOON_S) as handle:
            assert origin.begun == []
            assert handle.read(4990, 20).result(SOON_S) == small_content("a")[4990:5010]
            assert sorted(origin.begun) == [("a", 4000), ("a", 5000)]
            assert handle.read(10_400, 5000).result(SOON_S) == small_content("a")[10_400:]
            assert handle.read(20_000, 10).result(SOON_S) == b""
            assert handle.fd is None
        assert cache.stats().used_bytes == 2500
        with cache.open(key("a")).result(SOON_S) as handle:
            assert handle.read(5000, 10).result(SOON_S) == small_content("a")[5000:5010]
            assert len(origin.begun) == 3


def test_a_sequential_reader_has_the_next_chunks_and_finally_the_whole_file_fetched(origin, directory):
    with cache_before(directory, origin, whole_bytes=2000, revalidate_s=60) as cache:
        with cache.open(key("a")).result(SOON_S) as handle:
            handle.read(0, 100).result(SOON_S)
            until(lambda: len(origin.ended) == 9)
            assert b"".join(handle.read(at, 500).result(SOON_S) for at in range(0, 10_500, 500)) == small_content("a")
            until(lambda: handle.fd is not None)
            assert all_of(handle) == small_content("a")
        assert cache.has(key("a"))
        assert len(origin.begun) == 11


def test_parts_of_two_versions_are_never_mixed(origin, directory):
    with cache_before(directory, origin, whole_bytes=2000, revalidate_s=60) as cache:
        with cache.open(key("a")).result(SOON_S) as handle:
            handle.read(5000, 10).result(SOON_S)
            origin.contents["a"] = small_content("new")
            with pytest.raises(Exception, match="changed"):
                handle.read(8000, 10).result(SOON_S)
            assert handle.read(5000, 10).result(SOON_S) == small_content("a")[5000:5010]
            with pytest.raises(Exception, match="changed"):
                handle.read(1000, 10).result(SOON_S)
        with cache.open(key("a")).result(SOON_S) as handle:
            assert handle.read(8000, 10).result(SOON_S) == small_content("new")[8000:8010]


def test_chunks_of_a_prefetch_are_confirmed_before_they_are_read(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin, whole_bytes=2000, revalidate_s=60) as cache:
        prefetch = cache.fetch(key("a"))
        turnstile.release(5)
        until(lambda: len(origin.ended) == 5 and cache.arrived_bytes(key("a")) == 5000)
        assert origin.confirmed == 0
        here = {offset for _, offset in origin.ended}
        at, missing = min(here), max(set(range(0, 10_000, CHUNK)) - here)
        with cache.open(key("a")).result(SOON_S) as handle:
            assert handle.found is Found.PREFETCHED
            assert handle.read(at, 10).result(SOON_S) == small_content("a")[at : at + 10]
            assert origin.confirmed == 1
            origin.contents["a"] = small_content("new")
            turnstile.release(100)
            with pytest.raises(ChangedError):
                handle.read(missing, 10).result(SOON_S)
            assert handle.read(at, 10).result(SOON_S) == small_content("a")[at : at + 10]
        assert prefetch.result(SOON_S)
        assert opened(cache, "a")[1] == small_content("new")


def test_a_listed_file_is_fetched_without_asking_its_origin_first(origin, directory):
    with cache_before(directory, origin, revalidate_s=60) as cache:
        cache.listing("d")
        assert opened(cache, "a")[1] == small_content("a")
        assert (origin.stats, origin.confirmed) == ([], 1)
        origin.contents["b"] = small_content("new")  # the listing still has the old version
        assert opened(cache, "b")[1] == small_content("new")
        assert origin.stats == ["b"]
        del origin.contents["deep/c"]
        with pytest.raises(AbsentError):
            opened(cache, "deep/c")


def test_a_large_file_that_changed_since_it_was_listed_is_opened_in_its_current_version(origin, directory):
    with cache_before(directory, origin, whole_bytes=2000, limit_bytes=8000, revalidate_s=60) as cache:
        cache.listing("d")
        for path, size in (("a", 12_000), ("deep/c", 9000)):  # the first was large before, the second has grown
            origin.contents[path] = small_content("new", size)
            with cache.open(key(path)).result(SOON_S) as handle:
                assert handle.listed.size == size
                assert handle.read(size - 500, 600).result(SOON_S) == small_content("new", size)[-500:]


def test_a_fetch_of_a_partial_file_transfers_only_the_missing_chunks(origin, directory):
    with cache_before(directory, origin, whole_bytes=2000, revalidate_s=60) as cache:
        with cache.open(key("a")).result(SOON_S) as handle:
            handle.read(3000, 10).result(SOON_S)
        assert cache.fetch(key("a")).result(SOON_S)
        assert len(origin.begun) == 11
        assert opened(cache, "a")[1] == small_content("a")


def test_zeros_take_no_space(directory):
    origin = ScriptedOrigin({"a": bytes(50_000) + b"x" + bytes(40_000)})
    with cache_before(directory, origin, limit_bytes=95_000) as cache:
        assert opened(cache, "a")[1] == origin.contents["a"]
        assert cache.stats().used_bytes == CHUNK
        assert cache.verify() == []


# --- handles and futures --------------------------------------------------------------------------------------


def test_a_garbage_collected_handle_closes_itself(origin, directory):
    with cache_before(directory, origin) as cache:
        opened(cache, "b")
        fds = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        handle = cache.open(key("a")).result(SOON_S)
        assert cache.stats().open == 1
        del handle
        gc.collect()
        assert cache.stats().open == 0
        assert len(os.listdir("/proc/self/fd")) == fds  # noqa: PTH208


def test_a_closed_handle_refuses_to_read(origin, directory):
    with cache_before(directory, origin) as cache:
        handle = cache.open(key("a")).result(SOON_S)
        handle.close()
        handle.close()
        assert handle.fd is None
        with pytest.raises(ValueError, match="is closed"):
            handle.read(0, 1)


def test_coroutines_await_futures_and_a_cancelled_one_leaves_no_open_handle(origin, directory):
    turnstile = held(origin)

    async def readers(cache):
        patient, hasty = (asyncio.create_task(waits(cache)) for _ in range(2))
        await wait_on_loop(lambda: origin.begun, what="the first read of the origin")
        hasty.cancel()
        turnstile.release(100)
        with await patient as handle:
            assert all_of(handle) == small_content("a")
        with pytest.raises(asyncio.CancelledError):
            await hasty

    async def waits(cache):
        return await asyncio.wrap_future(cache.open(key("a")))

    with cache_before(directory, origin) as cache:
        asyncio.run(readers(cache))
        gc.collect()
        assert cache.stats().open == 0


# --- datasets -------------------------------------------------------------------------------------------------


def test_a_listing_survives_a_restart_and_is_renewed_in_the_background(origin, directory):
    with cache_before(directory, origin, relist_s=3600) as cache:
        listing = cache.listing("d")
        assert listing.names("") == ("a", "b", "deep", "empty")
        assert listing.names("deep") == ("c",)
        assert listing.is_directory("deep")
        assert cache.listing("d") is listing
        assert origin.listings == 1
    origin.down = True
    with cache_before(directory, origin, relist_s=0.0) as cache:
        assert cache.listing("d").names("") == ("a", "b", "deep", "empty")
        origin.down = False
        origin.contents["new"] = b"new"
        until(lambda: "new" in cache.listing("d").names(""))
        listing = cache.listing("d")
        seen = origin.listings
        until(lambda: cache.listing("d") and origin.listings > seen + 3)
        assert cache.listing("d") is listing  # unchanged, so the same object


def test_a_hostile_listing_shows_no_path_outside_its_dataset(directory):
    origin = ScriptedOrigin({"../up": b"", "/abs": b"", "a/../b": b"", "a\0": b"", "fine": b"", "x": b"", "x/y": b""})
    with cache_before(directory, origin) as cache:
        listing = cache.listing("d")
        assert sorted(listing.files) == ["fine", "x/y"]
        assert listing.skipped == 5


def test_stat_uses_the_listing_or_else_the_origin(origin, directory):
    with cache_before(directory, origin, revalidate_s=60) as cache:
        assert cache.stat(key("a")).size == 10_500
        assert origin.stats == ["a"]
        cache.listing("d")
        assert cache.stat(key("b")).size == 10_500
        assert origin.stats == ["a"]
        for _ in range(3):
            with pytest.raises(AbsentError):
                cache.stat(key("nothing"))
        assert origin.stats == ["a", "nothing"]


def test_warming_fetches_matching_files_and_reports_its_progress(origin, directory):
    told = []
    with cache_before(directory, origin) as cache:
        warmed = cache.warm("d", ["deep", "[ab]"], lambda *progress: told.append(progress)).result(SOON_S)
        assert (warmed.files, warmed.bytes, warmed.failed) == (3, 21_999, 0)
        assert told[-1] == (3, 3, 21_999, 21_999)
        assert cache.has(key("deep/c"))
        assert not cache.has(key("empty"))
        assert cache.warm("d").result(SOON_S).files == 4


def test_warming_more_than_fits_is_refused_at_once(origin, directory):
    with (
        cache_before(directory, origin, limit_bytes=20_000) as cache,
        pytest.raises(RoomError, match="do not fit into the cache"),
    ):
        cache.warm("d").result(SOON_S)


def test_warming_continues_after_a_file_that_fails(origin, directory):
    with cache_before(directory, origin) as cache:
        cache.listing("d")
        del origin.contents["b"]
        warmed = cache.warm("d").result(SOON_S)
        assert (warmed.files, warmed.failed) == (3, 1)
        assert warmed.error.startswith("b: ")


def test_warming_stops_when_its_future_is_cancelled(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin) as cache:
        future = cache.warm("d")
        until(lambda: origin.begun)
        future.cancel()
        until(lambda: cache.stats().in_flight == 0)
        turnstile.release(100)
        assert cache.stats().used_bytes == 0


def test_a_removed_dataset_leaves_the_cache_and_its_open_files_stay_readable(origin, directory):
    turnstile = held(origin)
    turnstile.release(11)
    with cache_before(directory, {"d": origin, "e": origin}) as cache:
        handle = cache.open(key("a")).result(SOON_S)
        coming = cache.open(key("b"))
        until(lambda: len(origin.begun) > 11)
        cache.remove("d")
        with pytest.raises(AbsentError, match="removed"):
            coming.result(SOON_S)
        assert all_of(handle) == small_content("a")
        assert not cache.has(key("a"))
        handle.close()
        turnstile.release(100)
        assert opened(cache, "deep/c", "e")[1] == small_content("c", 999)
        assert cache.stats().used_bytes == 999
        assert cache.empty("e") == 999
        assert list((directory / "files").glob("*/*")) == []


def test_another_origin_under_the_same_name_has_other_files(origin, directory):
    origins = {"d": origin}
    with cache_before(directory, origins, revalidate_s=60) as cache:
        opened(cache, "a")
        origins["d"] = ScriptedOrigin({"a": small_content("other")}, link="other")
        assert opened(cache, "a") == (Found.FETCHED, small_content("other"))
