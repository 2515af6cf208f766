"""Idle sandboxes are frozen: nothing in them computes until their next run."""

import asyncio
import os
import select
import socket
import time

import psutil
import pytest
from sandboxes import NodeRig, control_groups, isolation, play, result, with_and_without_walls

from aliquot.live.node.active_sandboxes import TICK_S, ActiveSandboxes
from aliquot.live.node.cell import ProcessHandle
from aliquot.live.node.sandbox_resources import tag_of
from aliquot.testing.server import alive
from aliquot.testing.waiting import TIMEOUT_S, wait_on_loop, wait_until

# A thread and a child go on after the call has returned. Both count as fast as they can.
LEFT_BEHIND_CODE = """
import mmap, os, struct, threading
shared = mmap.mmap(-1, 16)
thread = None
def count(place):
    while True:
        shared[place:place + 8] = struct.pack("Q", struct.unpack("Q", shared[place:place + 8])[0] + 1)
def main(args):
    global thread
    if args.get("begin"):
        if os.fork() == 0:
            if args.get("leave"):
                os.setsid()
            count(8)
        threading.Thread(target=count, args=(0,), daemon=True).start()
    return {"counts": list(struct.unpack("QQ", shared[:]))}
"""
ECHO = "def main(args):\n    return args\n"
LIMITS_S = (0.5, 5, 30)  # on a busy machine the first one may be over before the server stands still
FROZEN_STATES = {psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP}  # by a signal, or by a control group


def handle(rig: NodeRig, sandbox: int) -> ProcessHandle:
    return rig.node._sandboxes[sandbox].cell.process


async def frozen(rig: NodeRig, sandbox: int) -> None:
    await wait_on_loop(lambda: handle(rig, sandbox).frozen, what=f"sandbox {sandbox} to be frozen")
    process = psutil.Process(handle(rig, sandbox).pid)
    await wait_on_loop(process.status, lambda status: status in FROZEN_STATES, what="its process to stand still")


async def stand_still(sock: socket.socket, seconds: float) -> float:
    """Block the event loop while it handles input, until a message is there and the time is over.

    After that the loop runs its timers first. Return the loop's time when it began to stand still.
    """
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    reader, writer = os.pipe()

    def block() -> None:
        loop.remove_reader(reader)
        begun_s = time.monotonic()
        assert select.select([sock], [], [], TIMEOUT_S)[0], "no message came"
        time.sleep(max(0, begun_s + seconds - time.monotonic()))
        over.set_result(begun_s)

    loop.add_reader(reader, block)
    os.write(writer, b"x")
    begun_s = await over
    os.close(reader)
    os.close(writer)
    return begun_s


def cpu_s(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


@with_and_without_walls
@pytest.mark.parametrize("place", ["cpu", "host-1"])
def test_what_a_call_leaves_behind_stands_still_until_the_next_call(tmp_path, walls, place):
    async def scene(rig):
        sandbox = await rig.started(LEFT_BEHIND_CODE, place=(place,))
        await rig.run(sandbox, {"begin": True})
        await frozen(rig, sandbox)
        main = psutil.Process(handle(rig, sandbox).pid)
        pids = [main.pid, *(child.pid for child in main.children(recursive=True))]
        assert len(pids) == 2
        assert rig.node.usage()[0].processes == (2 if walls else 1)  # without control groups they are not counted
        used_s = cpu_s(pids)
        await asyncio.sleep(0.5)
        assert cpu_s(pids) - used_s <= 0.05
        before = result(await rig.run(sandbox))["counts"]
        assert not handle(rig, sandbox).frozen
        for _ in range(100):  # on a busy machine they may not get the processor in the first moment
            await asyncio.sleep(TICK_S)
            after = result(await rig.run(sandbox))["counts"]
            if all(now > then for now, then in zip(after, before, strict=True)):
                return
        raise AssertionError(f"they do not go on with the next run: {before}, {after}")

    play(tmp_path, scene, isolation=isolation(walls))


def test_a_process_that_left_its_process_group_is_frozen_too_where_there_are_control_groups(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(LEFT_BEHIND_CODE)
        await rig.run(sandbox, {"begin": True, "leave": True})
        await frozen(rig, sandbox)
        (child,) = psutil.Process(handle(rig, sandbox).pid).children()
        await wait_on_loop(child.status, lambda status: status in FROZEN_STATES, what="the child to stand still")

    play(tmp_path, scene)


@with_and_without_walls
def test_a_frozen_sandbox_ends_with_all_its_processes_when_it_is_stopped(tmp_path, walls):
    async def scene(rig):
        sandbox = await rig.started(LEFT_BEHIND_CODE)
        await rig.run(sandbox, {"begin": True})
        await frozen(rig, sandbox)
        main = psutil.Process(handle(rig, sandbox).pid)
        pids = [main.pid, *(child.pid for child in main.children())]
        rig.node.stop_sandbox(sandbox)
        for pid in pids:
            await wait_on_loop(lambda pid=pid: alive(pid), lambda lives: not lives, what=f"process {pid} to end")

    play(tmp_path, scene, isolation=isolation(walls))


@with_and_without_walls
def test_a_node_that_stops_ends_its_frozen_sandboxes(tmp_path, walls):
    pids = []

    async def scene(rig):
        for place in ("cpu", "host-1"):
            sandbox = await rig.started(LEFT_BEHIND_CODE, place=(place,))
            await rig.run(sandbox, {"begin": True})
            await frozen(rig, sandbox)
            main = psutil.Process(handle(rig, sandbox).pid)
            pids.extend([main.pid, *(child.pid for child in main.children())])

    play(tmp_path, scene, isolation=isolation(walls))
    wait_until(lambda: [pid for pid in pids if alive(pid)], lambda left: not left, what="all processes to end")


def test_frozen_sandboxes_end_with_their_zygote(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(LEFT_BEHIND_CODE)
        await rig.run(sandbox, {"begin": True})
        await frozen(rig, sandbox)
        main = psutil.Process(handle(rig, sandbox).pid)
        pids = [main.pid, *(child.pid for child in main.children())]
        for zygote in rig.node._zygotes._zygotes.values():
            zygote.kill()
        assert (await rig.next())[:2] == ("lost", sandbox)
        for pid in pids:
            await wait_on_loop(lambda pid=pid: alive(pid), lambda lives: not lives, what=f"process {pid} to end")

    play(tmp_path, scene)


def test_a_sandbox_that_ran_since_the_last_tick_is_not_frozen(tmp_path, monkeypatch):
    monkeypatch.setattr(ActiveSandboxes, "add", lambda *_: None)  # the test ticks itself

    async def scene(rig):
        sandbox = await rig.started(ECHO)
        local = rig.node._sandboxes[sandbox]
        for _ in range(3):
            await rig.run(sandbox)
            assert local.tick(time.perf_counter(), 0)
            assert not local.cell.process.frozen
        assert not local.tick(time.perf_counter(), 0)
        assert local.cell.process.frozen

    play(tmp_path, scene)


def test_a_frozen_sandbox_is_swapped_out_and_in(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(ECHO, place=("host-1",))
        await frozen(rig, sandbox)
        rig.node.unload(sandbox)
        rig.node.load(sandbox)
        assert (await rig.next())[:2] == ("loaded", sandbox)
        assert result(await rig.run(sandbox, {"a": 1})) == {"a": 1}
        await frozen(rig, sandbox)

    play(tmp_path, scene)


def test_a_sandbox_that_was_never_called_is_frozen(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("import threading\n" + LEFT_BEHIND_CODE)
        await frozen(rig, sandbox)
        (used,) = rig.node.usage()
        assert (used.sandbox, used.processes, used.frozen) == (sandbox, 1, True)

    play(tmp_path, scene)


def test_the_time_limit_holds_after_a_thaw(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("import time\ndef main(args):\n    time.sleep(args.get('s', 0))\n    return {}")
        await rig.run(sandbox)
        await frozen(rig, sandbox)
        outcome = await rig.run_and_lose(sandbox, {"s": 60}, timeout_ms=200)
        assert outcome.timed_out

    play(tmp_path, scene)


def test_a_run_that_ended_while_the_server_stood_still_has_not_timed_out(tmp_path):
    async def scene(rig):
        for limit_s in LIMITS_S:
            sandbox = await rig.started("import time\ndef main(args):\n    time.sleep(0.1)\n    return {'done': True}")
            await rig.run(sandbox)
            requested_s = time.monotonic()
            rig.request(sandbox, timeout_ms=round(limit_s * 1000))
            begun_s = await stand_still(rig.node._sandboxes[sandbox].cell.sock, limit_s + 0.1)
            what, _, outcome = await rig.next()
            if begun_s - requested_s < limit_s:
                break
        assert what == "finished", outcome
        assert result(outcome) == {"done": True}

    play(tmp_path, scene)


def test_a_start_that_ended_while_the_server_stood_still_has_not_timed_out(tmp_path):
    async def scene(rig):
        await rig.started(ECHO)  # its zygote is ready
        sandbox = rig.launch("import time\ntime.sleep(0.5)\n" + ECHO, timeout_ms=2000)
        await wait_on_loop(
            lambda: rig.node._sandboxes.get(sandbox), lambda one: one and not one._unread, what="the init to be sent"
        )
        await stand_still(rig.node._sandboxes[sandbox].cell.sock, 2.1)
        assert (await rig.next())[:2] == ("started", sandbox)

    play(tmp_path, scene)


def test_imports_that_ended_while_the_server_stood_still_have_not_timed_out(tmp_path):
    async def scene(rig):
        await rig.started(ECHO)
        zygotes = rig.node._zygotes._zygotes
        for limit_s, module in zip(LIMITS_S, ("decimal", "fractions", "statistics"), strict=True):
            before = set(zygotes)
            launched_s = time.monotonic()
            launched = rig.launch(f"import {module}\n{ECHO}", imports=(module,), timeout_ms=round(limit_s * 1000))
            await wait_on_loop(lambda before=before: zygotes.keys() - before, what="the zygote to be started")
            (profile,) = zygotes.keys() - before
            begun_s = await stand_still(zygotes[profile]._control, limit_s + 0.1)
            what, sandbox, outcome = await rig.next()
            assert sandbox == launched
            if begun_s - launched_s < limit_s:
                break
        # It has used up the time for its init, which another process measures from the start on.
        assert what == "started" or b"The imports of the action" not in outcome.result

    play(tmp_path, scene)


def test_no_control_group_is_left_when_the_node_has_stopped(tmp_path):
    async def scene(rig):
        for place in ("cpu", "host-1"):
            sandbox = await rig.started(ECHO, place=(place,))
            await frozen(rig, sandbox)

    play(tmp_path, scene)
    assert not control_groups(tag_of(tmp_path))
