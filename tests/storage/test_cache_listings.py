"""Listings of the cache: one at a time for each dataset, and a hanging origin delays no other."""

import threading

import pytest
from scripted_origin import SOON_S, ScriptedOrigin, cache_before, until

from aliquot.storage.cache import Listing
from aliquot.storage.cache.node import MAX_WARMINGS
from aliquot.storage.errors import CacheRefusedError, OriginError
from aliquot.storage.records import Listed


class _Hanging(ScriptedOrigin):
    """An origin whose listing stops after the first file until the test lets it continue."""

    def __init__(self, files):
        super().__init__(files, link="hanging")
        self.goes_on = threading.Event()

    def files(self):
        for number, file in enumerate(super().files()):
            if number:
                self.goes_on.wait(SOON_S)
            yield file


def test_a_hanging_listing_is_an_error_until_it_has_arrived(directory):
    origin = _Hanging({"a": b"a", "b": b"b"})
    with cache_before(directory, origin, stall_s=0.2) as cache:
        for _ in range(5):
            with pytest.raises(OriginError, match="is still being listed"):
                cache.listing("d")
        assert origin.listings == 1
        origin.goes_on.set()
        until(lambda: not cache._requests.listings._running)
        assert sorted(cache.listing("d").files) == ["a", "b"]
        assert origin.listings == 1


def test_a_dataset_whose_listing_hangs_is_listed_at_its_new_origin(directory):
    hanging = _Hanging({"a": b"a", "b": b"b"})
    origins = {"d": hanging}
    with cache_before(directory, origins, stall_s=0.2) as cache:
        with pytest.raises(OriginError):
            cache.listing("d")
        origins["d"] = ScriptedOrigin({"c": b"c"}, link="other")
        assert list(cache.listing("d").files) == ["c"]
        hanging.goes_on.set()


def test_the_first_listing_fails_with_the_error_of_the_origin(directory):
    origin = ScriptedOrigin({"a": b"a"})
    origin.down = True
    with cache_before(directory, origin) as cache:
        with pytest.raises(OriginError, match="is down"):
            cache.listing("d")
        origin.down = False
        assert list(cache.listing("d").files) == ["a"]


def test_the_number_of_datasets_warmed_at_once_is_limited(directory):
    origin = _Hanging({"a": b"a", "b": b"b"})
    with cache_before(directory, origin) as cache:
        futures = [cache.warm(f"d{number}") for number in range(MAX_WARMINGS)]
        with pytest.raises(CacheRefusedError, match="are being warmed already"):
            cache.warm("one more").result(SOON_S)
        origin.goes_on.set()
        assert [future.result(SOON_S).files for future in futures] == [2] * MAX_WARMINGS
        until(lambda: not cache._warmings)
        assert cache.warm("one more").result(SOON_S).files == 2


@pytest.mark.parametrize("size", [-1, 1 << 63, 1 << 70])
def test_a_file_of_an_impossible_size_is_skipped(size):
    listing = Listing([Listed("a", size, "1"), Listed("b", (1 << 63) - 1, "1")])
    assert (list(listing.files), listing.skipped) == (["b"], 1)
