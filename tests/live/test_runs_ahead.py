"""Runs that are handed to a busy sandbox: they run in order, or are taken back and never run."""

import asyncio

import pytest
from sandboxes import play, result, texts

from aliquot.live.node import active_sandboxes
from aliquot.live.node.base import RunRequest, Status
from aliquot.live.node.handed_runs import MAX_PAYLOAD_BYTES

NUMBERS = """
import os, sys, time
seen = []
def main(args):
    seen.append(args["n"])
    if args.get("print"):
        print("this is", args["n"])
    time.sleep(args.get("sleep", 0))
    if args.get("exit"):
        os._exit(1)
    if args.get("fail"):
        return "no dictionary"
    return {"seen": seen}
"""
ENDS_BEFORE_THE_NEXT_RUN = """
import os
def main(args):
    os.read = lambda *_: os._exit(1)
    return args
"""


@pytest.fixture
def no_ticks(monkeypatch):
    """Take nothing back, however long a busy machine needs for a run."""
    monkeypatch.setattr(active_sandboxes, "TICK_S", 1000)


async def finished(rig, sandbox):
    what, of, outcome = await rig.next()
    assert (what, of) == ("finished", sandbox), outcome
    return outcome


@pytest.mark.usefixtures("no_ticks")
def test_runs_handed_ahead_reply_in_order_and_say_how_long_they_took(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0})
        rig.hand_ahead(sandbox, *({"n": number} for number in range(1, 16)))
        outcomes = [await finished(rig, sandbox) for _ in range(16)]
        assert [result(outcome)["seen"][-1] for outcome in outcomes] == list(range(16))
        assert all(outcome.inside_s > 0 for outcome in outcomes)
        assert result(await rig.run(sandbox, {"n": 16}))["seen"] == list(range(17))

    play(tmp_path, scene)


def test_runs_behind_a_long_one_are_taken_back_and_never_run(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0, "sleep": 0.5})
        rig.hand_ahead(sandbox, {"n": 1}, {"n": 2})
        assert await rig.next() == ("taken back", sandbox, 2)
        assert result(await finished(rig, sandbox)) == {"seen": [0]}
        assert result(await rig.run(sandbox, {"n": 3})) == {"seen": [0, 3]}
        rig.request(sandbox, {"n": 4})
        rig.hand_ahead(sandbox, {"n": 5})  # all answers to those that were taken back have come

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_nothing_is_handed_ahead_before_the_runs_taken_back_are_answered(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0, "sleep": 0.5})
        rig.hand_ahead(sandbox, {"n": 1})
        await asyncio.sleep(0)  # so that the run is sent
        rig.node.take_back(sandbox)
        assert await rig.next() == ("taken back", sandbox, 1)
        assert not rig.node.run_next(sandbox, RunRequest("1" * 32, b'{"n":2}', False, {}, 60_000, 2**20))
        assert result(await finished(rig, sandbox)) == {"seen": [0]}
        assert result(await rig.run(sandbox, {"n": 3})) == {"seen": [0, 3]}

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_runs_that_are_not_sent_yet_are_taken_back(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0})
        rig.hand_ahead(sandbox, {"n": 1}, {"n": 2})
        rig.node.take_back(sandbox)
        assert await rig.next() == ("taken back", sandbox, 2)
        assert result(await finished(rig, sandbox)) == {"seen": [0]}

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_each_run_has_its_own_output(tmp_path):
    """After a run that has printed no other begins before the server has read the output."""

    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0})
        rig.hand_ahead(sandbox, {"n": 1, "print": True}, {"n": 2, "print": True}, {"n": 3})
        assert texts(await finished(rig, sandbox)) == []
        assert await rig.next() == ("taken back", sandbox, 2)
        assert texts(await finished(rig, sandbox)) == ["this is 1"]
        outcome = await rig.run(sandbox, {"n": 4, "print": True})
        assert texts(outcome) == ["this is 4"]
        assert result(outcome) == {"seen": [0, 1, 4]}

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_runs_behind_one_whose_process_ends_have_not_begun(tmp_path):
    async def scene(rig):
        for payload in ({"n": 0, "exit": True}, {"n": 0, "fail": True}):
            sandbox = await rig.started(NUMBERS)
            rig.request(sandbox, payload)
            rig.hand_ahead(sandbox, {"n": 1})
            what, of, outcome = await rig.next()
            assert (what, of, outcome.status) == ("lost", sandbox, Status.DEVELOPER_ERROR)
        assert rig.heard.queue.empty()

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_a_run_handed_ahead_that_its_dead_sandbox_has_not_begun_may_run_elsewhere(tmp_path):
    """The token of the run is left, which shows that it was never begun."""

    async def scene(rig):
        sandbox = await rig.started(ENDS_BEFORE_THE_NEXT_RUN)
        rig.request(sandbox, {"n": 0})
        rig.hand_ahead(sandbox, {"n": 1})
        assert result(await finished(rig, sandbox)) == {"n": 0}
        assert (await rig.next())[:2] == ("refused", sandbox)

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_time_limits_count_from_the_end_of_the_run_before(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0}, timeout_ms=1000)
        before = rig.node._sandboxes[sandbox].deadline_s
        rig.hand_ahead(sandbox, {"n": 1, "sleep": 0.2})
        await finished(rig, sandbox)
        assert rig.node._sandboxes[sandbox].deadline_s > before + 58  # the second one has a minute
        await finished(rig, sandbox)

    play(tmp_path, scene)


def test_a_run_that_exceeds_its_time_limit_ends_without_those_behind_it(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0, "sleep": 100}, timeout_ms=200)
        rig.hand_ahead(sandbox, {"n": 1})
        assert await rig.next() == ("taken back", sandbox, 1)
        what, _, outcome = await rig.next()
        assert (what, outcome.timed_out) == ("lost", True)

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_a_run_whose_token_the_function_has_taken_may_run_elsewhere(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        await rig.run(sandbox, {"n": 0})
        rig.request(sandbox, {"n": 1, "sleep": 0.05})
        rig.hand_ahead(sandbox, {"n": 2})
        await asyncio.sleep(0)  # so that the run is sent
        assert rig.node._sandboxes[sandbox]._handed._take_tokens(10) == 1  # as the function could do
        assert result(await finished(rig, sandbox)) == {"seen": [0, 1]}
        assert (await rig.next())[:2] == ("refused", sandbox)

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_large_payloads_and_other_kinds_of_runs_are_not_handed_ahead(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        rig.request(sandbox, {"n": 0, "sleep": 0.1})
        large = b'{"n":"%b"}' % (b"x" * MAX_PAYLOAD_BYTES)
        assert not rig.node.run_next(sandbox, RunRequest("1" * 32, large, False, {}, 60_000, 2**20))
        assert not rig.node.run_next(sandbox, RunRequest("1" * 32, b"", True, {}, 60_000, 2**20))
        await finished(rig, sandbox)

    play(tmp_path, scene)


@pytest.mark.usefixtures("no_ticks")
def test_results_above_the_size_of_a_read_do_not_mix(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("def main(args):\n    return {'n': args['n'], 'x': 'x' * args['size']}\n")
        sizes = [10, 200_000, 10, 2_000_000, 10, 65_536, 10]
        rig.request(sandbox, {"n": 0, "size": 5})
        rig.hand_ahead(sandbox, *({"n": number, "size": size} for number, size in enumerate(sizes, start=1)))
        await finished(rig, sandbox)
        got = [result(await finished(rig, sandbox)) for _ in sizes]
        assert [(one["n"], len(one["x"])) for one in got] == list(enumerate(sizes, start=1))

    play(tmp_path, scene)


def test_a_sandbox_closes_its_tokens(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(NUMBERS)
        tokens = rig.node._sandboxes[sandbox]._handed
        assert tokens.is_open
        rig.node.stop_sandbox(sandbox)
        assert not tokens.is_open

    play(tmp_path, scene)


# What a function can do to a descriptor that it shares with the server. All descriptors above 3 are its own or shared.
ABUSES = {
    "adds tokens": "os.eventfd_write(fd, 2**63)",
    "lets reads wait": "fcntl.fcntl(fd, fcntl.F_SETFL, 0)",
    "sends": "os.write(fd, bytes(1_000_000))",
    "ends both directions": "socket.socket(fileno=fd).shutdown(socket.SHUT_RDWR)",
    "takes tokens": "threading.Thread(target=lambda: [os.read(fd, 1) for _ in range(100)], daemon=True).start()",
}
ABUSIVE = """
import fcntl, os, socket, threading, time
for fd in range(4, 90):
    try:
        {}
    except (OSError, ValueError):
        pass
def main(args):
    time.sleep(args["sleep"])
    return {{}}
"""


@pytest.mark.parametrize("abuse", ABUSES)
def test_nothing_that_a_function_does_to_its_tokens_stops_the_server(tmp_path, abuse):
    async def scene(rig):
        sandbox = await rig.started(ABUSIVE.format(ABUSES[abuse]))
        rig.request(sandbox, {"sleep": 0.3})
        rig.hand_ahead(sandbox, {"sleep": 0}, {"sleep": 0})
        other = rig.launch(NUMBERS)
        while (await rig.next())[:2] != ("started", other):
            pass
        rig.request(other, {"n": 1})
        while (event := await rig.next())[:2] != ("finished", other):
            pass
        assert result(event[2]) == {"seen": [1]}

    play(tmp_path, scene)
