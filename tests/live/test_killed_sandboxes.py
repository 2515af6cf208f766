"""Sandboxes and zygotes that are killed: calls in flight are told, and others are started anew."""

import asyncio
import os
import signal

import psutil
import pytest
from sandboxes import isolation, play, result, strongest

from aliquot.live.node.base import Status
from aliquot.live.node.zygote_process import ZygoteProfile
from aliquot.live.node.zygotes import PLATFORM
from aliquot.testing.server import alive
from aliquot.testing.waiting import wait_on_loop, wait_until

ECHO = "def main(args):\n    return args\n"
KILLS_ITS_ZYGOTE = f"import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\n{ECHO}"


def running_zygotes():
    """Return the zygotes of this process. Children that other tests left as zombies have no command line."""
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in children if any("zygote.py" in word for word in child.cmdline())]


def test_a_sandbox_killed_in_a_run_has_a_clear_outcome(tmp_path):
    async def scene(rig):
        sandbox = await rig.started("import time\ndef main(args):\n    print('begun')\n    time.sleep(1000)")
        rig.request(sandbox)
        await rig.until_printed(sandbox, "begun")
        os.kill(rig.node.usage()[0].pid, signal.SIGKILL)
        what, _, outcome = await rig.next()
        assert (what, outcome.status) == ("lost", Status.DEVELOPER_ERROR)
        assert "exited unexpectedly" in result(outcome)["error"]

    play(tmp_path, scene)


def test_a_sandbox_that_dies_idle_is_lost(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(ECHO)
        os.kill(rig.node.usage()[0].pid, signal.SIGKILL)
        rig.node._sandboxes[sandbox].cell.process.thaw()  # a frozen process ends only when it is thawed
        assert (await rig.next())[:2] == ("lost", sandbox)
        rig.node.stop_sandbox(sandbox)

    play(tmp_path, scene)


def test_a_run_that_a_dead_sandbox_has_not_seen_may_run_elsewhere(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(ECHO)
        await rig.run(sandbox)
        pid = rig.node.usage()[0].pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), what="the sandbox to die")  # the loop must not hear of it yet
        rig.request(sandbox)
        assert (await rig.next())[:2] == ("refused", sandbox)

    play(tmp_path, scene)


async def run_on_another_zygote(rig):
    """Start a sandbox after a zygote was killed, as the service does: what ends with the zygote is started again."""
    for _ in range(3):  # A cell that is taken from the dying zygote is refused, or lost if it has just read its init.
        launched = rig.launch(ECHO)
        what, number, said = await rig.next()
        if what == "started":
            break
    assert (what, number) == ("started", launched), said
    assert result(await rig.run(launched, {"a": 1})) == {"a": 1}


def test_a_killed_zygote_is_started_again(tmp_path):
    async def scene(rig):
        first = await rig.started(ECHO)
        for zygote in running_zygotes():
            zygote.kill()
        assert (await rig.next())[:2] == ("lost", first)
        await run_on_another_zygote(rig)

    play(tmp_path, scene)


def test_a_task_that_waits_for_a_zygote_starts_no_other_when_all_are_stopped(tmp_path):
    async def scene(rig):
        zygotes, profile = rig.node._zygotes, ZygoteProfile(imports=("decimal",))

        async def stop_when_ready():
            await zygotes.get(profile).ready()
            zygotes.stop()

        stopping = asyncio.create_task(stop_when_ready())
        await asyncio.sleep(0)
        warming = asyncio.create_task(rig.node._preparation._warm_up(profile, PLATFORM))  # it ends after the stop
        await asyncio.gather(stopping, warming)
        assert len(zygotes) == 0

    play(tmp_path, scene)


def test_zygotes_that_nothing_lives_from_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr("aliquot.live.node.zygotes.MAX_ZYGOTES", 3)

    async def scene(rig):
        kept = await rig.started(ECHO, imports=("json",))
        for name in ("csv", "string", "calendar", "decimal", "fractions"):
            rig.node.stop_sandbox(await rig.started(ECHO, imports=(name,)))
            await wait_on_loop(rig.node.usage, lambda usage: len(usage) == 1, what="the sandbox to be stopped")
        await wait_on_loop(running_zygotes, lambda found: len(found) <= 4, what="the idle zygotes to end")
        assert result(await rig.run(kept, {"a": 1})) == {"a": 1}

    play(tmp_path, scene)


def test_a_start_from_a_zygote_that_is_killed_before_it_forks_may_be_repeated(tmp_path):
    async def scene(rig):
        first = await rig.started(ECHO)
        (zygote,) = rig.node._zygotes._zygotes.values()
        await wait_on_loop(lambda: not zygote._forking, what="the cell that is kept ready")
        os.kill(zygote._process.pid, signal.SIGSTOP)  # it forks no more
        zygote._ready_cells.clear()
        launched = rig.launch(ECHO)
        await wait_on_loop(lambda: zygote._forking, what="the request to fork")
        os.kill(zygote._process.pid, signal.SIGKILL)
        reports = [(await rig.next())[:2] for _ in range(2)]
        assert sorted(reports) == [("lost", first), ("refused", launched)]
        await run_on_another_zygote(rig)

    play(tmp_path, scene, isolation=isolation(walls=False))


def test_an_init_that_ends_with_its_zygote_may_be_repeated(tmp_path):
    async def scene(rig):
        launched = rig.launch(KILLS_ITS_ZYGOTE)
        assert (await rig.next())[:2] == ("refused", launched)
        await run_on_another_zygote(rig)

    play(tmp_path, scene, isolation=isolation(walls=False))


def test_an_init_that_always_ends_its_zygote_is_not_repeated_for_ever(tmp_path):
    async def scene(rig):
        reports = []
        while "lost" not in reports:
            rig.launch(KILLS_ITS_ZYGOTE)
            reports.append((await rig.next())[0])
            assert len(reports) < 5
        assert reports[0] == "refused"

    play(tmp_path, scene, isolation=isolation(walls=False))


@pytest.mark.skipif(not strongest().confined, reason="zygotes cannot be confined here")
@pytest.mark.parametrize("victim", ["zygote", "supervisor", "guard"])
def test_an_init_may_be_repeated_whichever_process_of_a_confined_zygote_is_killed(tmp_path, victim):
    async def scene(rig):
        launched = rig.launch(f"import time\ntime.sleep(60)\n{ECHO}")
        sandboxes = await wait_on_loop(rig.node.usage, what="the sandbox")
        (zygote,) = rig.node._zygotes._zygotes.values()
        guard = psutil.Process(zygote._process.pid)
        (supervisor,) = guard.children()
        inner = min(supervisor.children(), key=lambda process: process.create_time())
        assert inner.pid != sandboxes[0].pid
        if victim == "zygote":
            guard.suspend()  # as if others had the processor: it ends after the sandbox
        {"zygote": inner, "supervisor": supervisor, "guard": guard}[victim].kill()
        assert (await rig.next())[:2] == ("refused", launched)
        await run_on_another_zygote(rig)

    play(tmp_path, scene, isolation=strongest())
