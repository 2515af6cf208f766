"""Functions here and on a platform: values, errors, many at once, waiting and not."""

import asyncio
import threading

import numpy as np
import pytest

import aliquot
from aliquot.sdk import errors


def test_a_call_runs_here_and_remote_runs_there(sample):
    import os

    assert sample.where() == os.getpid()
    assert sample.where.remote() != os.getpid()
    assert sample.double(4) == sample.double.remote(4) == 8
    assert sample.both.remote(5, b=2) == 3
    assert sample.double.__doc__ == "Return the value twice."


def test_the_async_twin_gives_the_same(sample):
    async def main():
        return await asyncio.gather(*(sample.double.remote.aio(number) for number in range(20)))

    assert asyncio.run(main()) == [2 * number for number in range(20)]
    assert asyncio.run(sample.both.remote.aio(1, b=2)) == -1  # another loop, with connections of its own


def test_arrays_and_bytes_pass_as_they_are(sample):
    array = np.arange(3_000_000, dtype=np.float32).reshape(1000, 3000)
    result = sample.double.remote(array)
    assert result.dtype == np.float32
    assert np.array_equal(result, array * 2)
    assert asyncio.run(sample.double.remote.aio(array[:, ::2])).shape == (1000, 1500)
    assert sample.double.remote(b"\x00\xff" * 100_000) == b"\x00\xff" * 200_000


def test_classes_of_the_file_are_found_on_both_sides(sample):
    assert sample.mirror.remote(sample.Point(1, 2)) == sample.Point(2, 1)


def test_what_a_function_raises_is_raised_here_with_its_traceback(sample):
    with pytest.raises(ValueError, match="bad luck") as caught:
        sample.fail.remote("bad luck")
    notes = "\n".join(caught.value.__notes__)
    assert "raise ValueError(what)" in notes or "in fail" in notes
    assert "sample.fail on the platform, activation " in notes
    with pytest.raises(sample.OddError) as odd:
        sample.fail.remote("odd")
    assert odd.value.point == sample.Point(1, 2)


def test_a_function_that_dies_is_its_own_kind_of_error(sample):
    with pytest.raises(errors.FunctionError, match=r"exited unexpectedly.*aliquot logs [0-9a-f]{32}") as caught:
        sample.fail.remote("exit")
    assert len(caught.value.activation_id) == 32


def test_a_call_that_takes_longer_than_the_platform_holds_it_is_waited_for(sample):
    assert sample.slow.remote(0.6) == 0.6
    assert asyncio.run(sample.slow.remote.aio(0.6)) == 0.6


def test_spawn_gives_a_handle(sample):
    handle = sample.slow.spawn(0.4)
    with pytest.raises(TimeoutError, match=f"{handle.id} has not ended within 0.05 s"):
        handle.get(timeout=0.05)
    assert handle.get() == 0.4
    assert sample.slow.handle(handle.id).get(timeout=1) == 0.4
    with pytest.raises(ValueError, match="later"):
        sample.fail.spawn("later").get()

    async def main():
        spawned = await sample.double.spawn.aio("ab")
        return await spawned.get.aio()

    assert asyncio.run(main()) == "abab"


def test_a_spawned_call_can_be_cancelled(sample):
    handle = sample.slow.spawn(0.3)
    handle.cancel()
    with pytest.raises(errors.FunctionError, match="cancelled"):
        handle.get()


def test_map_keeps_order_and_runs_several_at_once(sample):
    seconds = [0.2, 0.0, 0.1, 0.0] * 5
    assert list(sample.slow.map(seconds)) == seconds
    assert list(sample.both.starmap([(3, 1), (5,)])) == [2, 4]


def test_map_reads_an_endless_input_only_as_far_as_needed(sample):
    taken = []

    def endless():
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    results = sample.double.map(endless(), concurrency=2)
    assert [next(results) for _ in range(5)] == [0, 2, 4, 6, 8]
    results.close()
    assert len(taken) <= 5 + 4 * 2


def test_map_raises_an_error_in_its_place_or_hands_it_over(sample):
    inputs = ["a", "b"]
    with pytest.raises(ValueError, match="a"):
        list(sample.fail.map(inputs))
    handed = list(sample.fail.map(inputs, return_exceptions=True))
    assert [(type(error), error.args) for error in handed] == [(ValueError, ("a",)), (ValueError, ("b",))]


def test_the_async_map_takes_plain_and_async_inputs(sample):
    async def numbers():
        for number in range(30):
            yield number

    async def main():
        plain = [value async for value in sample.double.map.aio(range(30), concurrency=4)]
        streamed = [value async for value in sample.double.map.aio(numbers())]
        kept = [value async for value in sample.fail.map.aio(["x"], return_exceptions=True)]
        stars = [value async for value in sample.both.starmap.aio([(2, 1)])]
        with pytest.raises(ValueError, match="x"):
            async for _ in sample.fail.map.aio("x"):
                pass
        return plain, streamed, kept, stars

    plain, streamed, kept, stars = asyncio.run(main())
    assert plain == streamed == [2 * number for number in range(30)]
    assert isinstance(kept[0], ValueError)
    assert stars == [1]


def test_a_refusal_for_being_too_many_is_tried_again(sample, stub):
    sample.double.remote(1)
    stub.counts(busy=3)
    assert sample.double.remote(2) == 4
    assert stub.counts()["busy"] == 0


def test_threads_may_share_functions(sample):
    results = {}

    def work(number):
        results[number] = [sample.double.remote(number) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [2 * number] * 5 for number in range(8)}


def test_what_cannot_be_sent_is_said(sample):
    with pytest.raises(errors.UsageError, match=r"an argument cannot be sent to the platform.*it takes what pickle"):
        sample.double.remote(lambda: 1)


def test_a_wrong_key_and_a_missing_platform_say_what_to_do(stub):
    app = aliquot.App("stranger", url=stub.local["url"], key="a:b")
    with pytest.raises(errors.KeyRefusedError, match=r"refuses the key.*aliquot namespace rotate-key NAME"):
        app.function(_plain).remote(1)
    app = aliquot.App("lost", url="http://127.0.0.1:9", key="a:b")
    with pytest.raises(errors.NoServerError, match=r"no platform answers at http://127.0.0.1:9.*aliquot up"):
        app.function(_plain).remote(1)


def _plain(value):
    return value


def test_a_platform_that_was_started_anew_is_found_again(sample, stub):
    """It has another address, or another key: `aliquot up` writes both down."""
    place = stub.folder / "local.json"
    assert sample.double.remote(1) == 2
    client = sample.app.client()
    right = place.read_text()
    client.server = client.server._replace(key="old:key")
    assert sample.double.remote(2) == 4
    client.server = client.server._replace(url="http://127.0.0.1:9")
    assert asyncio.run(sample.double.remote.aio(3)) == 6
    assert place.read_text() == right
