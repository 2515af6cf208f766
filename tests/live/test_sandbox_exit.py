"""The end of a sandbox whose class has `@aliquot.exit`: the code runs, for a bounded time, and only then."""

import pytest
from sandboxes import ECHO, isolation, play

from aliquot.live.node import cell
from aliquot.testing.server import alive
from aliquot.testing.waiting import wait_on_loop

CODE = """
import time, aliquot
app = aliquot.App("ends")
@app.cls
class Service:
    def call(self, x=0):
        return x
    @aliquot.exit
    def leave(self):
        print("nobody reads this")
        time.sleep({pause})
        open({path!r}, "a").write("left ")
        raise ValueError("nobody hears this")
"""
SETTINGS = {"main": "Service", "sdk": True}


def service(path, pause=0):
    return CODE.format(path=str(path), pause=pause)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_code_for_the_end_runs_when_the_sandbox_is_stopped(tmp_path, frozen):
    path = tmp_path / "left.txt"
    path.touch()
    path.chmod(0o666)

    async def scene(rig):
        sandbox = await rig.started(service(path), exit=True, **SETTINGS)
        await rig.run(sandbox, {"x": 1})
        process = rig.node._sandboxes[sandbox].cell.process
        if frozen:
            await wait_on_loop(lambda: process.frozen, what="the sandbox to be frozen")
        rig.node.stop_sandbox(sandbox)
        await wait_on_loop(path.read_text, lambda text: text == "left ", what="the code for the end")
        await wait_on_loop(lambda: not alive(process.pid), what="the end of the process")

    play(tmp_path / "data", scene, isolation=isolation(walls=False))


def test_code_that_does_not_end_is_killed_and_others_do_not_wait_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(cell, "_EXIT_TIMEOUT_S", 0.3)

    async def scene(rig):
        sandbox = await rig.started(service(tmp_path / "never", pause=1000), exit=True, **SETTINGS)
        pid = rig.node._sandboxes[sandbox].cell.process.pid
        rig.node.stop_sandbox(sandbox)
        other = await rig.started(ECHO)
        await rig.run(other)
        await wait_on_loop(lambda: not alive(pid), what="the end of the process")

    play(tmp_path / "data", scene)


def test_a_sandbox_that_is_stopped_during_a_run_is_killed_at_once(tmp_path):
    path = tmp_path / "left.txt"
    path.touch()
    path.chmod(0o666)
    slow = service(path).replace("return x", "time.sleep(1000)")

    async def scene(rig):
        sandbox = await rig.started(slow, exit=True, **SETTINGS)
        rig.request(sandbox, {"x": 1})
        pid = rig.node._sandboxes[sandbox].cell.process.pid
        rig.node.stop_sandbox(sandbox)
        await wait_on_loop(lambda: not alive(pid), what="the end of the process")

    play(tmp_path / "data", scene, isolation=isolation(walls=False))
    assert not path.read_text()
