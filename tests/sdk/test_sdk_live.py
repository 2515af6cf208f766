"""The SDK against a real platform: what the stand-in of the other tests promises must be so."""

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest

from aliquot.live.replay import replay_file
from aliquot.sdk import errors
from aliquot.testing.server import LiveServer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live") / "data") as server:
        yield server
    assert not replay_file(server.data).differences


@pytest.fixture
def sample(server, monkeypatch):
    for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALIQUOT_DATA", str(server.data))
    monkeypatch.syspath_prepend(str(HERE))
    sys.modules.pop("sample", None)
    import sample

    yield sample
    sys.modules.pop("sample", None)


def test_values_of_all_kinds_go_there_and_back(sample):
    array = np.arange(1_000_000, dtype=np.float64).reshape(1000, 1000)
    assert np.array_equal(sample.double.remote(array), array * 2)
    assert sample.double.remote(b"\x00\xff") == b"\x00\xff\x00\xff"
    assert sample.both.remote(5, b=2) == 3
    assert sample.mirror.remote(sample.Point(1, 2)) == sample.Point(2, 1)
    assert asyncio.run(sample.double.remote.aio(21)) == 42


def test_exceptions_come_as_their_own_type_with_the_other_sides_traceback(sample):
    with pytest.raises(ValueError, match="bad luck") as caught:
        sample.fail.remote("bad luck")
    assert "raise ValueError(what)" in "\n".join(caught.value.__notes__)
    with pytest.raises(sample.OddError) as odd:
        sample.fail.remote("odd")
    assert odd.value.point == sample.Point(1, 2)


def test_a_function_that_dies_is_named_with_its_activation(sample):
    with pytest.raises(errors.FunctionError, match=r"sample\.fail: The action .*; its logs: aliquot logs [0-9a-f]{32}"):
        sample.fail.remote("exit")
    with pytest.raises(errors.FunctionError, match=r"exited unexpectedly"):
        sample.fail.spawn("exit").get(timeout=30)
    assert sample.where.remote() > 0  # the others go on


def test_spawned_calls_are_found_again_and_can_be_cancelled(sample):
    handle = sample.double.spawn(4)
    assert sample.double.handle(handle.id).get(timeout=30) == 8
    endless = sample.slow.spawn(50)
    with pytest.raises(TimeoutError):
        endless.get(timeout=0.1)
    endless.cancel()
    with pytest.raises(errors.SdkError):
        endless.get(timeout=30)
    endless.cancel()  # it has ended: that is no error


def test_a_map_keeps_order_and_errors(sample):
    assert list(sample.double.map(range(40), concurrency=8)) == [2 * number for number in range(40)]
    results = list(sample.both.starmap([(1, 2), ("a", "b")], return_exceptions=True))
    assert results[0] == -1
    assert isinstance(results[1], TypeError)

    async def main():
        return [value async for value in sample.double.map.aio(range(40))]

    assert asyncio.run(main()) == [2 * number for number in range(40)]


def test_too_little_memory_for_the_platform_is_said(server, sample):
    app = sample.aliquot.App("small", url=server.url, key=server.key)
    app.module = sample.app.module
    tiny = app.function(memory="1MiB")(sample.where.raw)
    with pytest.raises(errors.RefusedError, match=r"small\.where: memory size 1 MB below allowed threshold"):
        tiny.remote()
