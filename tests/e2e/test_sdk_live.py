"""The SDK against a real platform: what the stand-in of the other tests promises must be so."""

import asyncio
import sys

import numpy as np
import pytest
from places import SUPPORT

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.sdk import errors
from aliquot.testing.server import LiveServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live") / "data", "--python", sys.executable) as server:
        yield server
    assert not replay_file(server.data).differences


@pytest.fixture
def sample(server, monkeypatch):
    for name in ("ALIQUOT_URL", "ALIQUOT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALIQUOT_DATA", str(server.data))
    monkeypatch.syspath_prepend(str(SUPPORT))
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
    with pytest.raises(
        errors.FunctionError, match=r"sample\.fail: exited with code \d+; its logs: aliquot logs [0-9a-f]{32}"
    ):
        sample.fail.remote("exit")
    with pytest.raises(errors.FunctionError, match=r"exited with code \d+"):
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


def test_a_spawned_call_is_followed_while_it_goes_on_and_afterwards(sample):
    handle = sample.talk.spawn("one", "two", "three")
    lines = handle.follow()
    assert next(lines).endswith("stdout: one")
    with pytest.raises(TimeoutError):
        handle.get(timeout=0)
    assert [line.rpartition(" ")[2] for line in lines] == ["two", "three"]
    assert handle.get(timeout=30) == 3
    assert [line.rpartition(" ")[2] for line in handle.follow()] == ["one", "two", "three"]
    with pytest.raises(errors.NotFoundError):
        next(sample.talk.handle("0" * 32).follow())


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


# --- sessions ---------------------------------------------------------------------------------------------------------


def sessions_of(server):
    """Session and function of every record, oldest first."""
    with server.client() as client:
        records = client.get("activations", params={"limit": 200}).json()
    said = [{pair["key"]: pair["value"] for pair in record["annotations"]} for record in records]
    return [(one.get("session"), record["name"]) for one, record in zip(said, records, strict=True)][::-1]


def living(server):
    with server.client() as client:
        return {one["sessionId"]: one for one in client.get(f"{server.url}/api/v1/sessions").json()}


def test_remote_calls_within_a_session_name_it(sample, server):
    sample.double.remote(1)
    before = len(sessions_of(server))
    with sample.app.session("analysis", user="ann", metadata={"paper": 3}) as session:
        begun = living(server)[session.id]
        assert (begun["name"], begun["user"]) == ("analysis", "ann")
        sample.double.remote(1)
        sample.double.spawn(2).get(timeout=30)
        assert list(sample.double.map([1, 2], concurrency=2)) == [2, 4]
    sample.double.remote(1)
    assert [named for named, _ in sessions_of(server)[before:]] == [session.id] * 4 + [None]
    assert session.id not in living(server)


def test_a_session_on_an_event_loop_is_its_tasks_own(sample, server):
    async def user():
        async with sample.app.session() as session:
            assert await sample.both.remote.aio(5, b=2) == 3
            assert [result async for result in sample.both.map.aio([1, 2])] == [0, 1]
        return session.id

    async def main():
        return await asyncio.gather(user(), user(), sample.both.remote.aio(9))

    one, other, _ = asyncio.run(main())
    named = [session for session, name in sessions_of(server) if name == "sample.both"]
    assert (named.count(one), named.count(other)) == (3, 3)
    assert one not in living(server)


def test_a_session_is_taken_up_by_its_id_and_goes_on_after_the_block(sample, server):
    with sample.app.session() as begun:
        with sample.app.session(id=begun.id) as again:
            sample.where.remote()
            with sample.app.session() as inner:
                sample.where.remote()
            sample.where.remote()
        assert again.id == begun.id in living(server)
        named = [session for session, name in sessions_of(server) if name == "sample.where"]
        assert named[-3:] == [begun.id, inner.id, begun.id]


def test_a_call_in_a_session_that_has_ended_says_so(sample):
    with sample.app.session() as session:
        session.end()
        with pytest.raises(errors.NotFoundError, match=f"There is no session '{session.id}', or it has ended"):
            sample.double.remote(1)


def test_what_cannot_be_a_session_is_refused_before_anything_is_sent(sample):
    for wrong, text in (
        ({"name": 1}, "name: 1 is not a name"),
        ({"metadata": [1]}, "metadata: .* takes a dictionary"),
        ({"id": "../x"}, "id: '../x' is not a session's id"),
        ({"user": 7}, "user: 7 is not a user; it takes a text"),
        ({"id": "a", "name": "b"}, "an existing session already has its name, metadata and user"),
        ({"id": "a", "user": "b"}, "an existing session already has its name, metadata and user"),
    ):
        with pytest.raises(errors.UsageError, match=text):
            sample.app.session(**wrong)
