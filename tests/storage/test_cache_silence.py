"""Slow and silent origins: requests are served or fail in time, and those of other origins are not delayed."""

import threading
import time

import pytest
from scripted_origin import CHUNK, SOON_S, ScriptedOrigin, cache_before, content, key, served, until

from aliquot.storage.cache import Urgency
from aliquot.storage.errors import OriginError, RoomError
from aliquot.storage.origins import fsspec_origin, origin_for
from aliquot.storage.records import Dataset


def test_a_slow_origin_is_not_a_silent_one(directory):
    origin = ScriptedOrigin({"a": content("a", 5 * CHUNK)})
    origin.before_piece = lambda _: time.sleep(0.4)  # four pieces per chunk
    with cache_before(directory, origin, stall_s=1.2) as cache:
        assert served(cache, "a") == content("a", 5 * CHUNK)


def test_a_paused_copy_is_not_taken_for_a_silent_origin(directory):
    """A copy, which has no chunks, pauses while a reader waits for another file of its link."""
    origin = ScriptedOrigin({"copied": content("c", 5 * CHUNK), "wanted": content("w", 12 * CHUNK)})
    origin.ranged = lambda listed: listed.path == "wanted"
    is_wanted, copied_meanwhile = threading.Event(), []

    def before_read(path, _):
        if path == "wanted":
            copied_meanwhile.append(sum(other == "copied" for other, _ in origin.begun))
            time.sleep(1.2)
        else:
            is_wanted.wait(SOON_S)

    origin.before_read = before_read
    with cache_before(directory, origin, stall_s=2) as cache:
        copied = cache.fetch(key("copied"), urgency=Urgency.WARM)
        until(lambda: origin.begun)
        wanted = cache.open(key("wanted"))  # 12 chunks, five or six at a time
        until(lambda: ("wanted", 0) in origin.begun)
        is_wanted.set()
        wanted.result(SOON_S).close()
        assert max(copied_meanwhile) < 5
        assert copied.result(SOON_S).listed.size == 5 * CHUNK


def test_a_hanging_link_does_not_take_every_worker(directory):
    hanging = ScriptedOrigin({str(n): b"x" for n in range(80)})
    other = ScriptedOrigin({"b": b"b"}, link="other")
    silence = threading.Event()
    hanging.before_stat = lambda _: silence.wait(SOON_S)
    with cache_before(directory, {"d": hanging, "e": other}, stall_s=0.5, patience_s=0.5) as cache:
        try:
            for future in [cache.open(key(str(n))) for n in range(80)]:
                assert isinstance(future.exception(SOON_S), OriginError)
            assert len(hanging.stats) < 40  # the others failed without a request to the origin
            cache.open(key("b", "e")).result(SOON_S).close()
        finally:
            silence.set()
        until(lambda: not cache._requests.progress.abandoned and not cache._requests.progress.running)
        cache.open(key("7")).result(SOON_S).close()  # the link answers again


def test_a_link_with_slow_answers_is_not_a_hanging_one(directory):
    """Cached files are served unchecked after a moment. Other files must still be fetched."""
    names = [str(number) for number in range(20)]
    origin = ScriptedOrigin(dict.fromkeys([*names, "new"], b"x"))
    with cache_before(directory, origin, patience_s=0.02) as cache:
        for name in names:
            assert served(cache, name) == b"x"
        origin.before_stat = lambda _: time.sleep(0.3)
        for future in [cache.open(key(name)) for name in names]:
            future.result(SOON_S).close()
        assert served(cache, "new") == b"x"


def test_waiting_requests_continue_when_abandoned_workers_come_back(directory):
    """All workers that one link may use hang, so that later requests wait for one of them to come back."""
    origin = ScriptedOrigin({"a": content("a", 50 * CHUNK), "b": b"b"})
    silence = threading.Event()
    settings = {"whole_bytes": 2 * CHUNK, "limit_bytes": 20 * CHUNK, "stall_s": 0.3}
    with cache_before(directory, origin, **settings) as cache, cache.open(key("a")).result(SOON_S) as handle:
        origin.before_read = lambda *_: silence.wait(SOON_S)
        handle.read(0, 6 * CHUNK)
        until(lambda: len(origin.begun) == 6)
        too_large, other = cache.fetch(key("a"), urgency=Urgency.WARM), cache.open(key("b"))
        until(lambda: len(cache._requests.progress.abandoned) == 6)
        origin.before_read = lambda *_: None
        silence.set()
        assert isinstance(too_large.exception(SOON_S), RoomError)
        other.result(SOON_S).close()
        until(lambda: not cache._requests.progress.abandoned)


def test_a_chunk_that_hung_is_requested_again_by_the_next_read(directory):
    origin = ScriptedOrigin({"a": content("a", 5 * CHUNK)})
    silence = threading.Event()
    origin.before_read = lambda _, offset: offset == 3 * CHUNK and silence.wait()
    with (
        cache_before(directory, origin, whole_bytes=2 * CHUNK, stall_s=1) as cache,
        cache.open(key("a")).result(SOON_S) as handle,
    ):
        with pytest.raises(OriginError, match="has sent nothing"):
            handle.read(3 * CHUNK, 10).result(SOON_S)
        origin.before_read = lambda *_: None
        again = handle.read(3 * CHUNK, 10)
        until(again.done)
        assert not silence.is_set()
        assert again.result() == content("a", 5 * CHUNK)[3 * CHUNK : 3 * CHUNK + 10]
        silence.set()


def test_a_hanging_link_does_not_delay_another(directory):
    hanging, other = ScriptedOrigin({str(n): b"x" for n in range(30)}), ScriptedOrigin({"b": b"b"}, link="other")
    silence = threading.Event()
    hanging.before_stat = lambda _: silence.wait(SOON_S)
    with cache_before(directory, {"d": hanging, "e": other}) as cache:
        futures = [cache.open(key(str(number))) for number in range(30)]
        with cache.open(key("b", "e")).result(SOON_S) as handle:
            assert handle.read(0, 1).result(SOON_S) == b"b"
        silence.set()
        for future in futures:
            future.result(SOON_S).close()


def test_the_link_of_an_origin_is_known_before_it_is_connected(monkeypatch):
    connecting = threading.Event()
    monkeypatch.setattr(fsspec_origin, "_driver", lambda *_: connecting.wait(SOON_S))
    origin = origin_for(Dataset("d", "sftp://host/folder"))
    assert origin.link == "sftp host"
    assert origin.identity
    connecting.set()
