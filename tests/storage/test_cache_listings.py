"""Listings of the cache: one at a time for a dataset, and an origin that hangs is in nobody else's way."""

import threading

import pytest
from scripted_origin import SOON_S, ScriptedOrigin, cache_before, until

from aliquot.storage.cache import Listing
from aliquot.storage.cache.node import MAX_WARMINGS
from aliquot.storage.errors import OriginError, RefusedError
from aliquot.storage.records import Listed


class _Hanging(ScriptedOrigin):
    """Its listing stops after the first file until it is let go."""

    def __init__(self, files):
        super().__init__(files, link="hanging")
        self.goes_on = threading.Event()

    def files(self):
        for number, file in enumerate(super().files()):
            if number:
                self.goes_on.wait(SOON_S)
            yield file


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


def test_a_listing_that_hangs_is_said_to_and_is_there_once_it_has_come(directory):
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


def test_whoever_asks_for_the_first_listing_is_told_why_there_is_none(directory):
    origin = ScriptedOrigin({"a": b"a"})
    origin.down = True
    with cache_before(directory, origin) as cache:
        with pytest.raises(OriginError, match="is down"):
            cache.listing("d")
        origin.down = False
        assert list(cache.listing("d").files) == ["a"]


def test_no_more_than_some_datasets_are_warmed_at_once(directory):
    origin = _Hanging({"a": b"a", "b": b"b"})
    with cache_before(directory, origin) as cache:
        tickets = [cache.warm(f"d{number}") for number in range(MAX_WARMINGS)]
        with pytest.raises(RefusedError, match="are being warmed already"):
            cache.warm("one more").result(SOON_S)
        origin.goes_on.set()
        assert [ticket.result(SOON_S).files for ticket in tickets] == [2] * MAX_WARMINGS
        until(lambda: not cache._warmings)
        assert cache.warm("one more").result(SOON_S).files == 2


@pytest.mark.parametrize("size", [-1, 1 << 63, 1 << 70])
def test_a_size_that_no_file_has_is_passed_over(size):
    listing = Listing([Listed("a", size, "1"), Listed("b", (1 << 63) - 1, "1")])
    assert (list(listing.files), listing.skipped) == (["b"], 1)
