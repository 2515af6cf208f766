"""Functions on a bad day: they loop, leak, flood, fork and run away, and harm themselves alone."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psutil
import pytest
from places import SUPPORT
from sandboxes import RUNAWAY_CODE, control_groups, isolation, play, result, texts, with_and_without_walls

from aliquot.live.node.base import Status
from aliquot.live.node.device_queues import DeviceQueues
from aliquot.live.node.sandbox_resources import tag_of
from aliquot.live.node.states import IDLE
from aliquot.live.node.swaps import NOT_OUT, SandboxSwapper
from aliquot.runtime.frames import REPLY
from aliquot.testing.server import alive
from aliquot.testing.waiting import TIMEOUT_S, wait_on_loop, wait_until

ECHO = "def main(args):\n    return args\n"
TAG = "aliquot-test-runaway"


def tagged(tag: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if tag in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


async def until_tagged(tag: str, count: int) -> None:
    """Wait until so many processes with this tag run."""
    await wait_on_loop(
        lambda: tagged(tag), lambda pids: len(pids) == count, what=f"{count} processes {tag}", pause_s=0.02
    )


def family(pid: int | None = None) -> list[int]:
    """Return the descendants of a process, by default of this one."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def test_a_flood_of_output_is_cut_and_memory_stays_bounded(tmp_path):
    code = """
import os
def main(args):
    for _ in range(800):
        os.write(1, b"x" * 99_999 + b"\\n")
    return {}
"""

    async def scene(rig):
        sandbox = await rig.started(code)
        before = psutil.Process().memory_info().rss
        outcome = await rig.run(sandbox, logs_bytes=100_000)
        assert outcome.status == Status.SUCCESS
        assert sum(map(len, outcome.logs)) < 101_000
        assert texts(outcome, "stderr")[-1].startswith("Logs were truncated")
        assert psutil.Process().memory_info().rss - before < 30_000_000

    play(tmp_path, scene)


def test_a_flood_without_lines_or_of_empty_lines_is_bounded_too(tmp_path):
    code = """
import os
def main(args):
    for _ in range(200):
        os.write(2, args["what"].encode() * 65_536)
    return {}
"""

    async def scene(rig):
        sandbox = await rig.started(code)
        for what in ("x", "\n"):
            outcome = await rig.run(sandbox, {"what": what}, logs_bytes=100_000)
            assert sum(map(len, outcome.logs)) < 101_000

    play(tmp_path, scene)


def test_others_run_while_one_floods_and_one_loops(tmp_path):
    async def scene(rig):
        flood = await rig.started("def main(args):\n    while True: print('x' * 1000)")
        loop = await rig.started("def main(args):\n    while True: pass")
        good = await rig.started(ECHO)
        rig.request(flood)
        rig.request(loop)
        for number in range(100):
            assert result(await rig.run(good, {"n": number})) == {"n": number}
        rig.node.stop_sandbox(flood)
        rig.node.stop_sandbox(loop)
        assert result(await rig.run(good, {"n": "last"})) == {"n": "last"}

    play(tmp_path, scene)


@pytest.mark.parametrize("body", ["print('x' * 1000)", "pass"], ids=["floods", "loops"])
def test_one_that_floods_or_loops_ends_at_its_time_limit(tmp_path, body):
    async def scene(rig):
        sandbox = await rig.started(f"def main(args):\n    while True: {body}")
        assert (await rig.run_and_lose(sandbox, timeout_ms=300)).timed_out

    play(tmp_path, scene)


def test_a_fork_bomb_harms_itself_alone(tmp_path):
    code = """
import os, time
def main(args):
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)
"""

    async def scene(rig):
        good = await rig.started(ECHO)
        bomb = await rig.started(code)
        before = len(family())
        rig.request(bomb)
        await wait_on_loop(lambda: len(family()), lambda count: count > before + 40, what="the bomb to go off")
        assert len(family()) < before + 70
        assert result(await rig.run(good, {"a": 1})) == {"a": 1}
        rig.node.stop_sandbox(bomb)
        # More cells may be ready than before. The bomb had over 40 processes.
        await wait_on_loop(lambda: len(family()), lambda count: count < before + 15, what="the bomb's processes to end")

    if not (isolation(walls=True).pid and (isolation(walls=True).own_uid or isolation(walls=True).user)):
        pytest.skip("this machine has nothing that counts a sandbox's processes")
    play(tmp_path, scene, max_processes=64)


@with_and_without_walls
def test_a_timeout_kills_children_that_left_the_session(tmp_path, walls):
    tag = f"{TAG}-{os.getpid()}-{walls}"

    async def scene(rig):
        sandbox = await rig.started(RUNAWAY_CODE)
        await rig.run(sandbox, {"tag": tag})
        await until_tagged(tag, 1)
        assert (await rig.run_and_lose(sandbox, {"tag": tag, "sleep": 1000}, timeout_ms=300)).timed_out
        await until_tagged(tag, 0)

    play(tmp_path, scene, isolation=isolation(walls))


@with_and_without_walls
def test_children_of_a_function_that_leaves_or_is_stopped_end_with_it(tmp_path, walls):
    tag = f"{TAG}-{os.getpid()}-{walls}-b"

    async def scene(rig):
        leaver = await rig.started(RUNAWAY_CODE)
        await rig.run_and_lose(leaver, {"tag": tag, "leave": True})
        await until_tagged(tag, 0)
        other = await rig.started(RUNAWAY_CODE)
        await rig.run(other, {"tag": tag})
        await until_tagged(tag, 1)
        rig.node.stop_sandbox(other)
        await until_tagged(tag, 0)

    play(tmp_path, scene, isolation=isolation(walls))


def test_an_import_that_fails_in_the_zygote_is_named(tmp_path):
    async def scene(rig):
        for _ in range(2):
            outcome = await rig.not_started(ECHO, imports=("json", "nonesuch"))
            assert outcome.status == Status.DEVELOPER_ERROR
            assert "The import 'nonesuch' failed: ModuleNotFoundError" in result(outcome)["error"]

    play(tmp_path, scene)


def test_a_stopped_start_is_never_heard_of(tmp_path):
    async def scene(rig):
        for pause in (0, 0.001, 0.005, 0.02):
            rig.node.stop_sandbox(rig.launch("import time\ntime.sleep(1000)"))
            rig.launch("import time\ntime.sleep(1000)")
            await asyncio.sleep(pause)
            rig.node.stop_sandbox(rig.last)
        good = await rig.started(ECHO)
        assert rig.heard.queue.empty()
        assert [usage.sandbox for usage in rig.node.usage()] == [good]

    play(tmp_path, scene)


def test_a_swapped_out_sandbox_stands_still_until_it_is_loaded(tmp_path):
    code = """
import threading, time
count = 0
def tick():
    global count
    while True:
        count += 1
        time.sleep(0.001)
threading.Thread(target=tick, daemon=True).start()
def main(args):
    return {"count": count}
"""

    async def scene(rig):
        sandbox = await rig.started(code, place=("host-1",))
        rig.node.unload(sandbox)
        process = psutil.Process(rig.node.usage()[0].pid)
        still = {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP}  # by signal, or frozen
        await wait_on_loop(process.status, lambda status: status in still, what="the sandbox to stand still")
        rig.node.load(sandbox)
        assert (await rig.next())[:2] == ("loaded", sandbox)
        assert result(await rig.run(sandbox))["count"] > 0

    play(tmp_path, scene)


def test_a_start_waits_for_a_stop_on_its_device(tmp_path):
    async def scene(rig):
        first = await rig.started(ECHO, place=("host-1",))
        pid = rig.node.usage()[0].pid
        rig.node.stop_sandbox(first)
        await rig.started("import os\ndef main(args):\n    return {}", place=("host-1",))
        assert not alive(pid)

    play(tmp_path, scene)


HOST = """
import asyncio, sys
sys.path.insert(0, {here!r})
from pathlib import Path
import uvloop
from aliquot.live.node.zygotes import PLATFORM
from aliquot.testing.waiting import wait_on_loop
from sandboxes import node, RUNAWAY_CODE, isolation

async def main():
    async with node(Path(sys.argv[1]), isolation=isolation(sys.argv[3] == "walls")) as rig:
        looping = await rig.started(RUNAWAY_CODE)
        rig.request(looping, {{"tag": sys.argv[2], "sleep": 1000}}, timeout_ms=10**9)
        deaf = "import signal\\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\\nwhile True: pass"
        rig.launch(deaf, timeout_ms=10**9)
        await wait_on_loop(rig.node.usage, lambda usage: len(usage) == 2, what="two sandboxes")
        print("up", *[usage.pid for usage in rig.node.usage()], flush=True)
        await asyncio.sleep(10**6)

uvloop.run(main())
"""


def test_kill_9_of_the_server_leaves_nothing_behind(tmp_path):
    tag = f"{TAG}-{os.getpid()}-host"
    if not isolation(walls=True).pid:
        pytest.skip("without pid namespaces children that left may stay until the next start")
    script = tmp_path / "host.py"
    script.write_text(HOST.format(here=str(SUPPORT)))
    host = subprocess.Popen(
        [sys.executable, script, tmp_path / "data", tag, "walls"], stdout=subprocess.PIPE, text=True
    )
    pids = [int(word) for word in host.stdout.readline().split()[1:]]
    assert len(pids) == 2
    wait_until(lambda: tagged(tag), what="the child that runs away")
    started = family(host.pid)
    assert set(pids) <= set(started)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    wait_until(
        lambda: [pid for pid in started if alive(pid)], lambda pids: not pids, what="the server's processes to end"
    )
    wait_until(lambda: tagged(tag), lambda pids: not pids, what="the child that ran away to end")

    async def scene(rig):
        assert result(await rig.run(await rig.started(ECHO), {"a": 1})) == {"a": 1}

    play(tmp_path / "data", scene)  # the next server on the same data finds its place clean
    assert not control_groups(tag_of(tmp_path / "data"))


@pytest.mark.parametrize("pause", [0, 0.5], ids=["at once", "one by one"])
def test_a_torn_reply_and_an_exit_hold_up_nobody_else_on_the_device(tmp_path, pause):
    code = """
import os, time
def main(args):
    os.write(3, b"12345")  # to the server
    time.sleep(args["pause"])
    os._exit(0)
"""

    async def scene(rig):
        torn = await rig.started(code, place=("host-1",))
        sandbox = rig.node._sandboxes[torn]
        rig.request(torn, {"pause": pause})
        if pause:
            await wait_on_loop(lambda: sandbox._connection.received > 0, what="a part of a reply")
        # The loop is blocked meanwhile, so that it gets all events at once.
        wait_until(sandbox.cell.process.is_over, what="the sandbox's end")
        what, of, outcome = await rig.next()
        assert (what, of, outcome.status) == ("lost", torn, Status.DEVELOPER_ERROR)
        assert result(await rig.run(await rig.started(ECHO, place=("host-1",)), {"n": 1})) == {"n": 1}

    play(tmp_path, scene)


def test_a_driver_that_raises_as_it_swaps_holds_up_nobody_else_on_the_device():
    class Broken:
        def has_own_memory(self, place):
            return True

        def swap_out(self, sandbox):
            raise OSError("the driver is not well")

    lost = []
    sandbox = SimpleNamespace(
        cell=SimpleNamespace(process=SimpleNamespace(thaw=lambda: None)),
        launch=SimpleNamespace(place=("a",)),
        number=1,
        state=IDLE,
        fail=lambda *why: lost.append(why),
    )

    async def scene():
        queues = DeviceQueues(["a"])
        with ThreadPoolExecutor(1) as executor:
            SandboxSwapper(Broken(), queues, asyncio.get_running_loop(), executor).swap_out(sandbox)
            freed = asyncio.Event()
            queues.run("a", freed.set)
            assert not freed.is_set()
            await asyncio.wait_for(freed.wait(), TIMEOUT_S)

    asyncio.run(scene())
    assert lost == [(Status.INTERNAL_ERROR, NOT_OUT)]


def test_a_result_too_deep_to_be_read_is_no_json(tmp_path):
    size = 100_000
    code = f"import os, time\ndef main(args):\n    os.write(3, {REPLY.pack(0, False, 0, 2 * size, 0)!r})\n"
    code += f"    os.write(3, b'[' * {size} + b']' * {size})\n    time.sleep(60)\n"

    async def scene(rig):
        lost = await rig.run_and_lose(await rig.started(code))
        assert lost.status == Status.DEVELOPER_ERROR
        assert "did not produce a valid JSON" in result(lost)["error"]

    play(tmp_path, scene)
