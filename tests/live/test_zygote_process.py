"""A zygote that says what it may not say is ended, and costs the server neither descriptors nor memory."""

import asyncio
import os
import resource
import signal
import time
from pathlib import Path

import psutil
import pytest
import uvloop
from sandboxes import play, result

from aliquot.core.units import MIB
from aliquot.live.node.base import Status
from aliquot.live.node.cell import Cell, ProcessHandle
from aliquot.live.node.error_output import READ_PAUSE_S
from aliquot.live.node.isolation import NO_ISOLATION, walls
from aliquot.live.node.sandbox_resources import SandboxResources
from aliquot.live.node.states import StartError
from aliquot.live.node.zygote_failures import MAX_BACKOFF_S, MAX_REMEMBERED, ZygoteFailures
from aliquot.live.node.zygote_process import MIN_COUNTED_BYTES, ZygoteProcess, ZygoteProfile
from aliquot.live.node.zygotes import ZygotePool
from aliquot.testing.waiting import TIMEOUT_S, wait_on_loop, wait_until

BEGIN = """
import json, os, signal, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
control.recv(65536)
null = os.open("/dev/null", os.O_RDONLY)
def say(message, *fds):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    socket.send_fds(control, [data], fds) if fds else control.send(data)
"""
READY = "say({'ready': True})\n"
STAY = "\ntime.sleep(600)\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Let zygotes run this code instead of ours."""

    def use(code):
        (tmp_path / "zygote.py").write_text(BEGIN + code)
        monkeypatch.setattr("aliquot.live.node.zygote_process._SCRIPT", tmp_path / "zygote.py")

    return use


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


MESSAGES = {
    "no JSON": "say(b'\\xff{')",
    "another type": "say([1, 2])",
    "an unknown field": "say({'ready': True, 'more': 1})",
    "nothing at all": "say({})",
    "two things at once": "say({'ready': True, 'failed': 'x'})",
    "descriptors with ready": "say({'ready': True}, null)",
    "many descriptors": "say({'ready': True}, *[null] * 100)",
    "descriptors with failed": "say({'failed': 'x'}, null, null)",
    "deep": "say(b'[' * 60000)",
    "a descriptor number": "say({'forked': 1, 'pidfd': 0})",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_an_unexpected_message_before_ready_ends_the_zygote(script, name):
    script(MESSAGES[name] + STAY)

    async def scene():
        before = open_descriptors()
        zygote = ZygoteProcess(ZygoteProfile(), walls(NO_ISOLATION, "/nowhere"), asyncio.get_running_loop())
        with pytest.raises(StartError, match="The runtime's process was ended: it sent") as failed:
            await asyncio.wait_for(zygote.ready(), TIMEOUT_S)
        assert failed.value.status == Status.DEVELOPER_ERROR
        assert not zygote.alive
        assert open_descriptors() == before

    uvloop.run(scene())


ANSWERS = {
    "no descriptor": ("say({'forked': 1})", "it sent 0 descriptors"),
    "two descriptors": ("say({'forked': 1}, os.pidfd_open(os.getpid()), null)", "it sent 2 descriptors"),
    "no pidfd": ("say({'forked': 1}, null)", "no pidfd"),
    "the server's pidfd": ("say({'forked': 1}, os.pidfd_open(os.getppid()))", "has not forked"),
    "its own pidfd": ("say({'forked': 1}, os.pidfd_open(os.getpid()))", "has not forked"),
    "an unknown number": ("say({'unforked': 7, 'why': ''})", "nobody has requested"),
    "an unknown fork": ("child = os.fork() or time.sleep(600)\nsay({'forked': 7}, os.pidfd_open(child))", "requested"),
    "ready twice": ("say({'ready': True})", "ready twice"),
}


class Listener:
    def __init__(self):
        self.told = []

    def never_forked(self, status, why):
        self.told.append((status, why))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_unexpected_answer_ends_the_zygote_and_fails_the_start(script, name):
    code, expected = ANSWERS[name]
    script(READY + "control.recv(65536)\n" + code + STAY)
    listener = Listener()

    async def scene():
        before = open_descriptors()
        loop = asyncio.get_running_loop()
        zygote = ZygoteProcess(ZygoteProfile(), walls(NO_ISOLATION, "/nowhere"), loop)
        await asyncio.wait_for(zygote.ready(), TIMEOUT_S)
        cell = Cell(1, ProcessHandle(0, None, loop), lambda _: None)
        cell.assign(listener)
        zygote.fork(cell, cell.take_process_ends(), {})
        await wait_on_loop(lambda: not zygote.alive, what="the end of the zygote")
        [(status, why)] = listener.told
        assert status == Status.DEVELOPER_ERROR
        assert expected in why
        assert open_descriptors() == before

    uvloop.run(scene())


def test_a_zygote_that_died_after_a_fork_has_crashed_and_told_nothing_wrong(script):
    """Its child has another parent when the server reads the message."""
    script(
        READY + "control.recv(65536)\nchild = os.fork() or time.sleep(10)\n"
        "say({'forked': 1}, os.pidfd_open(child))\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    listener = Listener()

    async def scene():
        loop = asyncio.get_running_loop()
        zygote = ZygoteProcess(ZygoteProfile(), walls(NO_ISOLATION, "/nowhere"), loop)
        await asyncio.wait_for(zygote.ready(), TIMEOUT_S)
        cell = Cell(1, ProcessHandle(0, None, loop), lambda _: None)
        cell.assign(listener)
        zygote.fork(cell, cell.take_process_ends(), {})
        process = psutil.Process(zygote._process.pid)
        wait_until(process.status, lambda status: status == psutil.STATUS_ZOMBIE, what="the zygote to die")
        await wait_on_loop(lambda: not zygote.alive, what="the end of the zygote to be noticed")
        assert [status for status, _ in listener.told] == [Status.INTERNAL_ERROR]
        assert zygote.has_crashed()

    uvloop.run(scene())


def test_a_zygote_that_has_closed_its_socket_has_crashed_although_it_runs_still(script):
    """Its sandboxes end after its socket is closed, and before its process is gone."""
    script("import signal\nsignal.signal(signal.SIGUSR1, lambda *_: control.close())\n" + READY + STAY)

    async def scene():
        zygote = ZygoteProcess(ZygoteProfile(), walls(NO_ISOLATION, "/nowhere"), asyncio.get_running_loop())
        await asyncio.wait_for(zygote.ready(), TIMEOUT_S)
        os.kill(zygote._process.pid, signal.SIGUSR1)
        wait_until(zygote.has_crashed, what="the closed socket to be noticed, while the event loop stands still")
        assert zygote.alive
        zygote.kill()

    uvloop.run(scene())


LARGE_ERRORS = """
try:
    os.ftruncate(2, 3 << 30)
    os.lseek(2, 0, 2)
except OSError:
    pass
sys.exit('last words')
"""


def test_a_zygotes_errors_cost_the_server_no_memory(script):
    """A sparse file of 3 GB takes no time to make."""
    script(LARGE_ERRORS)

    async def scene():
        zygote = ZygoteProcess(ZygoteProfile(), walls(NO_ISOLATION, "/nowhere"), asyncio.get_running_loop())
        with pytest.raises(StartError, match=r"ended unexpectedly: .*last words"):
            await asyncio.wait_for(zygote.ready(), TIMEOUT_S)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    uvloop.run(scene())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"


def test_a_zygote_that_prints_without_end_waits_and_fills_no_disk(script, tmp_path):
    printed = tmp_path / "printed"
    script(f"""
while True:
    os.write(2, bytes(2**16))
    with open({str(printed)!r}, "ab") as file:
        file.write(b"x")
""")

    async def scene():
        zygote = ZygoteProcess(ZygoteProfile(), walls(NO_ISOLATION, "/nowhere"), asyncio.get_running_loop())
        before_s = time.monotonic()
        await wait_on_loop(lambda: printed.exists() and printed.stat().st_size > 5, what="the first prints")
        await asyncio.sleep(0.5)
        most = 2 + (time.monotonic() - before_s) / READ_PAUSE_S
        assert printed.stat().st_size < most, "pieces of 64 KiB: one in each pause, and one in the pipe"
        zygote.kill()

    uvloop.run(scene())


def test_a_zygote_that_no_longer_forks_is_ended_with_the_start_that_waited_for_it(script, tmp_path):
    script(READY + STAY)

    async def scene(rig):
        (zygote,) = await wait_on_loop(rig.node._zygotes._zygotes.values, what="the zygote of the node")
        await asyncio.wait_for(zygote.ready(), TIMEOUT_S)
        outcome = await rig.not_started("def main(args): return {}", timeout_ms=300)
        assert outcome.timed_out
        await wait_on_loop(lambda: not zygote.alive, what="the end of the zygote that does not fork")
        assert not psutil.pid_exists(zygote._process.pid)

    play(tmp_path / "data", scene, isolation=NO_ISOLATION)


def test_a_profile_that_fails_is_left_alone_for_a_while(script, tmp_path):
    starts = tmp_path / "starts"
    script(f"open({str(starts)!r}, 'a').write('x')\nsay({{'failed': 'It is broken'}})" + STAY)

    async def scene():
        resources = SandboxResources(tmp_path, NO_ISOLATION, MIB, 10)
        pool = ZygotePool(lambda _: walls(NO_ISOLATION, "/nowhere"), resources, asyncio.get_running_loop())
        for _ in range(20):
            with pytest.raises(StartError, match="It is broken") as failed:
                await asyncio.wait_for(pool.ready(ZygoteProfile()), TIMEOUT_S)
        assert "tried again in" in str(failed.value)
        assert len(starts.read_text()) < 5

    uvloop.run(scene())


def test_the_pause_after_failures_grows_up_to_a_bound_and_ends():
    failures = ZygoteFailures()
    why, now, pauses = StartError(Status.DEVELOPER_ERROR, "Broken"), 0.0, []
    for _ in range(10):
        failures.add("profile", why, now, was_ready=False)
        pause = next(s for s in (0, 1, 2, 4, 8, 16, 32, 60, 1000) if not _is_refused(failures, now + s))
        pauses.append(pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    failures.add("profile", why, now + 10 * MAX_BACKOFF_S, was_ready=False)
    assert not _is_refused(failures, now + 10 * MAX_BACKOFF_S + 1), "it begins anew after a quiet time"


def test_the_first_end_of_a_zygote_that_was_ready_is_an_accident():
    failures = ZygoteFailures()
    why = StartError(Status.INTERNAL_ERROR, "Killed")
    failures.add("profile", why, 0.0, was_ready=True)
    assert not _is_refused(failures, 0.0)
    failures.add("profile", why, 0.0, was_ready=True)
    assert _is_refused(failures, 0.5)


def test_only_so_many_failures_are_remembered():
    failures = ZygoteFailures()
    for number in range(MAX_REMEMBERED + 10):
        failures.add(number, StartError(Status.INTERNAL_ERROR, ""), 0.0, was_ready=False)
    assert len(failures) == MAX_REMEMBERED


def _is_refused(failures, now_s):
    try:
        failures.check("profile", now_s)
    except StartError:
        return True
    return False


def test_a_tenant_with_many_profiles_pushes_out_its_own_zygotes_first(script, tmp_path, monkeypatch):
    monkeypatch.setattr("aliquot.live.node.zygotes.MAX_ZYGOTES", 5)
    monkeypatch.setattr("aliquot.live.node.zygotes.MAX_TENANT_ZYGOTES", 3)
    script(READY + STAY)

    def profile(name):
        return ZygoteProfile(imports=(name,))

    async def scene():
        resources = SandboxResources(tmp_path, NO_ISOLATION, MIB, 10)
        pool = ZygotePool(lambda _: walls(NO_ISOLATION, "/nowhere"), resources, asyncio.get_running_loop())
        first = [await pool.ready(profile(name), "neighbour") for name in ("a", "b")]
        greedy = [await pool.ready(profile(f"greedy {number}"), "greedy") for number in range(6)]
        assert [zygote.alive for zygote in first] == [True, True]
        assert [zygote.alive for zygote in greedy] == [False, False, False, True, True, True], "its limit"
        third = await pool.ready(profile("c"), "other")
        assert [zygote.alive for zygote in (*first, third)] == [True] * 3
        assert sum(zygote.alive for zygote in greedy) == 2, "the tenant with the most has lost one"
        assert await pool.ready(profile("a"), "greedy") is first[0], "equal profiles share a zygote"
        pool.stop()

    uvloop.run(scene())


def test_zygotes_beyond_a_tenants_memory_end_with_its_idle_sandboxes_and_then_starts_are_refused(tmp_path, monkeypatch):
    """Memory is enough for 8.5 zygotes. One is the platform's own, and a tenant may have half of what others leave."""
    monkeypatch.setattr(ZygoteProcess, "used_bytes", property(lambda _: MIN_COUNTED_BYTES))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr("aliquot.live.node.zygotes.MAX_MEMORY_DIVISOR", machine / (8.5 * MIN_COUNTED_BYTES))
    code = "import time\ndef main(args):\n    time.sleep(args['s'])\n    return {}\n"

    async def scene(rig):
        zygotes = [await rig.started(code, imports=(name,), tenant="greedy") for name in ("abc", "ast", "bisect")]
        other = await rig.started(code, imports=("ast",), tenant="other")  # it shares the second
        rig.request(zygotes[2], {"s": 30})
        fourth = rig.launch(code, imports=("calendar",), tenant="greedy")
        said = [await rig.next() for _ in range(2)]
        assert [(what, number) for what, number, _ in said] == [("refused", zygotes[0]), ("started", fourth)]
        rig.request(fourth, {"s": 30})
        fifth = await rig.started(code, imports=("cmath",), tenant="greedy")  # the second counts for the other now
        rig.request(fifth, {"s": 30})
        outcome = await rig.not_started(code, imports=("csv",), tenant="greedy")
        assert "the namespace's running calls use 3 sets of `requirements` and `imports`" in str(result(outcome))
        assert (await rig.run(other, {"s": 0})).status is Status.SUCCESS
        assert await rig.started(code, imports=("csv",), tenant="other")

    play(tmp_path / "data", scene)
