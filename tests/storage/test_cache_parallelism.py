"""The number of chunks fetched at once for a reader: no more than make the link faster."""

import random
import threading

import pytest
from scripted_origin import CHUNK, SOON_S, ScriptedOrigin, cache_before, key, until

from aliquot.storage.cache.transfers.parallelism import ROUNDS_BETWEEN_TRIALS, ChunkParallelism

MAX_CHUNKS = 8


def rounds(parallelism, link, number):
    """Return the numbers tried in each round on a link whose speed for a number of chunks is given by `link`."""
    tried = []
    for _ in range(number):
        tried.append(parallelism.chunks)
        parallelism.measured(link(parallelism.chunks))
    return tried


def full(_):
    return 100.0


def slow_ones(at_once):
    return 10.0 * at_once


def test_if_one_chunk_at_a_time_fills_the_link_more_are_tried_only_now_and_then():
    tried = rounds(ChunkParallelism(MAX_CHUNKS), full, 2 * (ROUNDS_BETWEEN_TRIALS + 2) + 1)
    assert tried == [1, 2, *[1] * ROUNDS_BETWEEN_TRIALS, 1, 2, *[1] * ROUNDS_BETWEEN_TRIALS, 1]


def test_if_each_connection_is_slow_the_maximum_is_used():
    parallelism = ChunkParallelism(6)
    assert rounds(parallelism, slow_ones, 5) == [1, 2, 4, 6, 6]


@pytest.mark.parametrize("enough", [1, 2, 4, 8])
def test_it_settles_at_the_number_beyond_which_nothing_is_gained(enough):
    parallelism = ChunkParallelism(MAX_CHUNKS)
    rounds(parallelism, lambda at_once: 10.0 * min(at_once, enough), 8)
    assert parallelism.chunks == enough


def test_a_link_that_changes_is_noticed():
    parallelism = ChunkParallelism(MAX_CHUNKS)
    rounds(parallelism, slow_ones, 8)
    assert parallelism.chunks == MAX_CHUNKS
    tried = rounds(parallelism, full, 10 * ROUNDS_BETWEEN_TRIALS)
    assert tried[-1] <= 2
    assert MAX_CHUNKS in rounds(parallelism, slow_ones, 10 * ROUNDS_BETWEEN_TRIALS)


def test_one_of_several_readers_is_measured_at_a_time():
    parallelism = ChunkParallelism(MAX_CHUNKS)
    for tenth in range(5):
        parallelism.arrived(1, 100, now=tenth / 10)
        parallelism.arrived(2, 100, now=tenth / 10)
    assert parallelism.chunks == 2  # after four more chunks of the first reader; those of the second do not count
    parallelism.stop_measuring(1)
    parallelism.arrived(2, 100, now=1.0)
    for hundredth in range(1, 7):
        parallelism.arrived(2, 100, now=1 + hundredth / 100)
    assert parallelism.chunks == 4


@pytest.fixture
def origin():
    return ScriptedOrigin({"a": random.Random("a").randbytes(40 * CHUNK)})


def begun(origin):
    return [offset // CHUNK for _, offset in origin.begun]


def test_the_next_chunk_starts_when_half_of_the_last_has_arrived(origin, directory):
    go_on, asked = threading.Semaphore(0), []

    def before_piece(offset):
        asked.append(offset)
        go_on.acquire(timeout=SOON_S)

    origin.before_piece = before_piece
    with (
        cache_before(directory, origin, whole_bytes=2 * CHUNK) as cache,
        cache.open(key("a")).result(SOON_S) as handle,
    ):
        first = handle.read(0, 100)
        until(lambda: begun(origin) == [0])
        go_on.release()  # 300 of 1000
        until(lambda: asked == [0, 300])
        transfer = cache._machine.transfers[key("a")]
        assert transfer.next_step(now=transfer.not_before_s) is None
        go_on.release()  # 600
        until(lambda: begun(origin) == [0, 1])
        assert not first.done()
        origin.before_piece = lambda _: None
        go_on.release(100)
        assert first.result(SOON_S) == origin.contents["a"][:100]


def test_an_awaited_chunk_overtakes_read_ahead(origin, directory):
    """Chunk 0 is being fetched, and chunk 5, which no reader waits for, comes before the awaited one in the queue."""
    go_on = threading.Event()
    origin.before_piece = lambda offset: offset < 20 * CHUNK and go_on.wait(SOON_S)
    with (
        cache_before(directory, origin, whole_bytes=2 * CHUNK) as cache,
        cache.open(key("a")).result(SOON_S) as handle,
    ):
        first = handle.read(0, 100)
        until(lambda: begun(origin) == [0])
        transfer = cache._machine.transfers[key("a")]
        with cache._requests.decide(wakes_workers=True):
            transfer.want(5, first=True)
        assert handle.read(30 * CHUNK, 10).result(SOON_S) == origin.contents["a"][30 * CHUNK : 30 * CHUNK + 10]
        assert not first.done()
        go_on.set()
        first.result(SOON_S)


def test_on_a_link_with_slow_connections_more_and_more_chunks_are_fetched_at_once(origin, directory):
    """Each chunk takes equally long, however many others are fetched beside it."""
    lock, moving, at_once = threading.Lock(), 0, []

    def take_a_while(_path, _offset):
        nonlocal moving
        with lock:
            moving += 1
            at_once.append(moving)
        threading.Event().wait(0.01)
        with lock:
            moving -= 1

    size = 600 * CHUNK  # enough for several trials on a busy machine
    origin.contents["a"] = random.Random("b").randbytes(size)
    origin.before_read = take_a_while
    with (
        cache_before(directory, origin, whole_bytes=2 * CHUNK) as cache,
        cache.open(key("a")).result(SOON_S) as handle,
    ):
        for place in range(0, size, 500):
            assert handle.read(place, 500).result(SOON_S) == origin.contents["a"][place : place + 500]
            if max(at_once) >= 4:
                break
    assert at_once[:3] == [1, 1, 1]
    assert max(at_once) >= 4


def test_a_whole_file_is_fetched_by_all_workers_of_its_link(origin, directory):
    gate = threading.Event()
    origin.before_read = lambda *_: gate.wait(SOON_S)
    with cache_before(directory, origin, workers=8) as cache:
        future = cache.open(key("a"))
        until(lambda: len(origin.begun) == 6)  # a quarter of the workers is not for one link
        gate.set()
        future.result(SOON_S).close()
