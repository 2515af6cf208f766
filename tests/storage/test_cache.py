"""The node cache in front of a scripted origin: what it serves, fetches and keeps."""

import random
import threading

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

from aliquot.core.errors import InputError
from aliquot.policies.eviction import EVICTION
from aliquot.storage.cache import CacheSettings, NodeCache, Urgency
from aliquot.storage.errors import AbsentError, CacheRefusedError, OriginError, PathError, RoomError
from aliquot.storage.records import Found


def test_a_file_is_fetched_once_and_then_found_in_the_cache(origin, directory):
    with cache_before(directory, origin, revalidate_s=60) as cache:
        assert opened(cache, "a") == (Found.FETCHED, small_content("a"))
        assert opened(cache, "a") == (Found.CACHED, small_content("a"))
        assert opened(cache, "empty") == (Found.FETCHED, b"")
        assert sorted(origin.begun) == [("a", offset) for offset in range(0, 10_500, CHUNK)]
        stats = cache.stats()
        assert (stats.used_bytes, stats.open, stats.in_flight) == (10_500, 0, 0)
        of = stats.datasets["d"]
        assert (of.files, of.bytes, of.hits, of.misses, of.fetched_bytes) == (2, 10_500, 1, 2, 10_500)


def test_try_open_opens_a_cached_file_at_once_and_fetches_nothing(origin, directory):
    with cache_before(directory, origin, revalidate_s=60) as cache:
        assert cache.try_open(key("a")) is None
        assert cache.stats().in_flight == 0
        assert opened(cache, "a") == (Found.FETCHED, small_content("a"))
        with cache.try_open(key("a")) as handle:
            assert (handle.found, all_of(handle)) == (Found.CACHED, small_content("a"))
            assert cache.stats().open == 1
        assert (cache.stats().open, cache.stats().datasets["d"].hits) == (0, 1)
        for path in (directory / "files").glob("*/*"):
            path.unlink()
        assert cache.try_open(key("a")) is None
        assert opened(cache, "a") == (Found.FETCHED, small_content("a"))
        assert cache.try_open(key("../a")) is None


def test_try_open_does_not_ask_whether_a_file_has_changed(origin, directory):
    with cache_before(directory, origin, revalidate_s=0.0) as cache:
        opened(cache, "a")
        origin.contents["a"] = small_content("new")
        assert cache.try_open(key("a")) is None
        assert opened(cache, "a") == (Found.FETCHED, small_content("new"))
    assert cache.try_open(key("a")) is None  # closed


def test_all_requests_of_a_file_share_one_transfer(origin, directory):
    gate = threading.Event()
    origin.before_read = lambda *_: gate.wait(SOON_S)
    with cache_before(directory, origin) as cache:
        futures = [cache.open(key("a")) for _ in range(20)] + [cache.fetch(key("a")) for _ in range(20)]
        gate.set()
        for future in futures[:20]:
            with future.result(SOON_S) as handle:
                assert all_of(handle) == small_content("a")
        assert {future.result(SOON_S).listed.size for future in futures[20:]} == {10_500}
        assert len(origin.begun) == 11


def test_the_first_open_of_a_prefetched_file_counts_as_prefetched(origin, directory):
    with cache_before(directory, origin, revalidate_s=60) as cache:
        assert not cache.has(key("a"))
        future = cache.fetch(key("a"))
        assert future.result(SOON_S).listed.size == 10_500
        assert future.moved_bytes == 10_500
        assert cache.has(key("a"))
        assert opened(cache, "a") == (Found.PREFETCHED, small_content("a"))
        assert opened(cache, "a") == (Found.CACHED, small_content("a"))
        assert cache.fetch(key("b"), urgency=Urgency.WARM).result(SOON_S)
        assert opened(cache, "b")[0] is Found.CACHED
        assert cache.stats().datasets["d"].prefetched_bytes == 10_500


def test_an_open_that_joins_a_running_prefetch_counts_as_prefetched(origin, directory):
    gate, begun = threading.Event(), threading.Event()
    origin.before_read = lambda *_: (begun.set(), gate.wait(SOON_S))
    with cache_before(directory, origin) as cache:
        fetch = cache.fetch(key("a"))
        begun.wait(SOON_S)
        future = cache.open(key("a"))
        gate.set()
        with future.result(SOON_S) as handle:
            assert handle.found is Found.PREFETCHED
        assert fetch.result(SOON_S)


def test_invalid_paths_and_a_closed_cache_fail_the_future(directory, origin):
    with cache_before(directory, {"d": origin, "gone": origin}) as cache:
        with pytest.raises(PathError):
            cache.open(key("../a")).result(SOON_S)
        with pytest.raises(AbsentError):
            cache.open(key("nothing")).result(SOON_S)
        with pytest.raises(PathError):
            cache.stat(key("/etc/passwd"))
    with pytest.raises(CacheRefusedError):
        cache.open(key("a")).result(SOON_S)


def test_a_changed_file_is_fetched_again_and_checked_at_most_every_revalidate_s(origin, directory):
    with cache_before(directory, origin, revalidate_s=3600) as cache:
        opened(cache, "a")
        origin.contents["a"] = small_content("new")
        assert opened(cache, "a") == (Found.CACHED, small_content("a"))
        assert len(origin.stats) == 1
    with cache_before(directory, origin, revalidate_s=0.0) as cache:
        before = cache.open(key("b")).result(SOON_S)
        origin.contents["b"] = small_content("newer")
        assert opened(cache, "a") == (Found.FETCHED, small_content("new"))
        assert opened(cache, "b") == (Found.FETCHED, small_content("newer"))
        assert all_of(before) == small_content("b")  # an open handle keeps the old version
        before.close()
        assert cache.stats().datasets["d"].refetched == 2
        assert cache.stats().used_bytes == 2 * 10_500


def test_a_file_deleted_at_its_origin_leaves_the_cache(origin, directory):
    with cache_before(directory, origin) as cache:
        opened(cache, "a")
        del origin.contents["a"]
        with pytest.raises(AbsentError):
            opened(cache, "a")
        assert cache.stats().used_bytes == 0


def test_a_file_is_compared_with_the_checksum_of_its_origin(origin, directory):
    origin.checksums = {"a": "md5:0123", "b": "md5:" + __import__("hashlib").md5(small_content("b")).hexdigest()}
    with cache_before(directory, origin) as cache:
        with pytest.raises(OriginError, match="does not match its origin's checksum"):
            opened(cache, "a")
        assert opened(cache, "b")[1] == small_content("b")
        assert cache.stats().used_bytes == 10_500


# --- cancelling and urgency --------------------------------------------------------------------------------------


def test_a_transfer_cancelled_by_all_its_requests_stops_at_the_next_chunk_and_leaves_nothing(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin, workers=2) as cache:
        futures = [cache.fetch(key("a")), cache.fetch(key("a"))]
        until(lambda: origin.begun)
        assert futures[0].cancel()
        turnstile.release()
        until(lambda: len(origin.begun) > 1)
        assert futures[1].cancel()
        begun = len(origin.begun)
        turnstile.release(20)
        until(lambda: len(origin.ended) == begun)
        assert len(origin.begun) == begun
        assert cache.stats().used_bytes == 0
        assert cache.stats().in_flight == 0
        assert futures[1].moved_bytes >= CHUNK


def test_a_transfer_cancelled_by_one_request_continues_for_the_other(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin) as cache:
        one, other = cache.open(key("a")), cache.open(key("a"))
        until(lambda: origin.begun)
        one.cancel()
        turnstile.release(100)
        with other.result(SOON_S) as handle:
            assert all_of(handle) == small_content("a")


def test_a_demanded_file_overtakes_a_prefetch_at_the_next_chunk(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin, workers=2) as cache:
        prefetch = cache.fetch(key("a"))
        until(lambda: len(origin.begun) == 1)  # at most one of two workers serves prefetches
        future = cache.open(key("b"))
        until(lambda: len(origin.begun) == 2)
        turnstile.release(2 + 11)
        future.result(SOON_S).close()
        assert [path for path, _ in origin.begun][1:12] == ["b"] * 11
        turnstile.release(100)
        prefetch.result(SOON_S)


def test_a_prefetch_is_promoted_when_its_file_is_opened(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin, workers=2) as cache:
        first, second = cache.fetch(key("a")), cache.fetch(key("b"))
        until(lambda: len(origin.begun) == 1)
        future = cache.open(key("b"))
        turnstile.release(12)
        future.result(SOON_S).close()
        assert [path for path, _ in origin.begun][1:12] == ["b"] * 11
        turnstile.release(100)
        assert first.result(SOON_S)
        assert second.result(SOON_S)


def test_a_future_can_be_promoted(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin, workers=2) as cache:
        first, second = cache.fetch(key("a")), cache.fetch(key("b"))
        until(lambda: len(origin.begun) == 1)
        second.promote()
        turnstile.release(12)
        second.result(SOON_S)
        assert [path for path, _ in origin.begun][1:12] == ["b"] * 11
        turnstile.release(100)
        first.result(SOON_S)


def test_demand_on_one_link_does_not_delay_prefetches_on_another(origin, directory):
    other = ScriptedOrigin({"x": small_content("x")}, link="other")
    turnstile = held(origin)
    with cache_before(directory, {"d": origin, "other": other}) as cache:
        future = cache.open(key("a"))
        until(lambda: origin.begun)
        assert cache.fetch(key("x", "other")).result(SOON_S)
        turnstile.release(100)
        future.result(SOON_S).close()


def test_a_budget_of_zero_refuses_prefetches_and_nothing_else(origin, directory):
    with cache_before(directory, origin, prefetch_bytes_per_s=0) as cache:
        with pytest.raises(CacheRefusedError, match="--prefetch-bandwidth"):
            cache.fetch(key("a")).result(SOON_S)
        assert cache.fetch(key("a"), urgency=Urgency.WARM).result(SOON_S)
        assert opened(cache, "b")[1] == small_content("b")


def test_prefetches_wait_for_their_budget_and_demand_does_not(origin, directory):
    with cache_before(directory, origin, prefetch_bytes_per_s=1000) as cache:
        prefetch = cache.fetch(key("a"))  # takes more than 10 s
        until(lambda: len(origin.ended) >= 1)
        assert opened(cache, "b")[1] == small_content("b")
        assert not prefetch.done()
        assert opened(cache, "a") == (Found.PREFETCHED, small_content("a"))
        assert prefetch.result(SOON_S)


# --- space ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eviction", EVICTION)
def test_every_policy_keeps_the_cache_within_its_limit_and_never_evicts_open_files(directory, eviction):
    files = {f"{number}": small_content(number, 1000 + 37 * number) for number in range(60)}
    origin = ScriptedOrigin(files)
    chance = random.Random(1)
    with cache_before(directory, origin, limit_bytes=20_000, eviction=eviction, revalidate_s=60) as cache:
        kept = cache.open(key("7")).result(SOON_S)
        for _ in range(300):
            path = str(min(int(chance.expovariate(0.1)), 59))
            assert opened(cache, path)[1] == files[path]
            assert cache.stats().used_bytes <= 20_000
        assert cache.has(key("7"))
        assert all_of(kept) == files["7"]
        kept.close()
        stats = cache.stats().datasets["d"]
        assert stats.hits > 30
        assert stats.evicted > 30
        until(lambda: sum(path.stat().st_size for path in (directory / "files").glob("*/*")) == stats.bytes)


def test_policies_count_a_prefetched_file_as_used_once(origin, directory):
    """Otherwise `gdsf` would evict it first, however expensive its transfer was."""
    with cache_before(directory, origin, revalidate_s=60) as cache:
        cache.fetch(key("a")).result(SOON_S)
        entry = cache._machine.space.entries[key("a")]
        assert entry.uses == 1
        for uses in (1, 2, 3):
            opened(cache, "a")
            assert entry.uses == uses


def test_an_unknown_policy_is_refused_with_a_list_of_the_known_ones(directory, origin):
    with pytest.raises(InputError, match="s3fifo"):
        NodeCache(directory, CacheSettings(1000, eviction="fifo"), lambda _: origin)


def test_a_file_larger_than_the_cache_is_read_as_it_arrives_and_its_fetch_names_the_setting(origin, directory):
    with cache_before(directory, origin, limit_bytes=5000) as cache:
        with pytest.raises(RoomError, match="--cache-size"):
            cache.fetch(key("a")).result(SOON_S)
        with cache.open(key("a")).result(SOON_S) as handle:
            assert handle.fd is None
            whole = b"".join(handle.read(offset, 700).result(SOON_S) for offset in range(0, 10_500, 700))
            assert whole == small_content("a")
            assert handle.read(100, 50).result(SOON_S) == small_content("a")[100:150]
            assert cache.stats().used_bytes <= 5000
        origin.is_ranged = False
        with pytest.raises(RoomError):
            cache.open(key("b")).result(SOON_S)


def test_a_file_is_read_as_it_arrives_if_open_files_fill_the_cache(origin, directory):
    with cache_before(directory, origin, limit_bytes=13_000) as cache, cache.open(key("a")).result(SOON_S) as first:
        with pytest.raises(RoomError, match="open files and transfers"):
            cache.fetch(key("b"), urgency=Urgency.DEMAND).result(SOON_S)
        with cache.open(key("b")).result(SOON_S) as second:
            parts = [second.read(offset, 500).result(SOON_S) for offset in range(0, 10_500, 500)]
            assert b"".join(parts) == small_content("b")
            with pytest.raises(RoomError):
                second.read(0, 10_500).result(SOON_S)
        assert all_of(first) == small_content("a")


def test_a_running_prefetch_gives_its_space_to_a_demanded_file(origin, directory):
    turnstile = held(origin)
    with cache_before(directory, origin, limit_bytes=15_000) as cache:
        prefetch = cache.fetch(key("a"))
        until(lambda: origin.begun)
        future = cache.open(key("b"))
        turnstile.release(100)
        with future.result(SOON_S) as handle:
            assert all_of(handle) == small_content("b")
        with pytest.raises(RoomError, match="cancelled to make space for"):
            prefetch.result(SOON_S)
