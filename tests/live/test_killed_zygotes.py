"""A zygote that is killed takes no start with it: the function has not run yet, and another zygote can start it."""

import os
import signal

from sandboxes import isolation, play, result

from aliquot.testing.waiting import wait_on_loop

ECHO = "def main(args):\n    return args\n"
KILLS_ITS_ZYGOTE = f"import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)\n{ECHO}"


async def run_on_another_zygote(rig):
    assert result(await rig.run(await rig.started(ECHO), {"a": 1})) == {"a": 1}


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
