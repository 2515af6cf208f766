"""Restarts of worker processes: the delay grows while they end soon, and an unwilling one is killed."""

import asyncio
import signal
import sys

from aliquot import worker_process
from aliquot.worker_process import MAX_RESTART_DELAY_S, MIN_RESTART_DELAY_S, STABLE_S, RestartDelay, end_process


def test_the_delay_doubles_up_to_its_maximum_and_is_forgotten_after_a_stable_run():
    delay = RestartDelay()
    delays = [delay.after(0.1) for _ in range(8)]
    assert delays[:3] == [MIN_RESTART_DELAY_S, 2 * MIN_RESTART_DELAY_S, 4 * MIN_RESTART_DELAY_S]
    assert delays[-1] == MAX_RESTART_DELAY_S
    assert delay.after(STABLE_S) == 0
    assert delay.after(0.1) == MIN_RESTART_DELAY_S


def test_a_process_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(worker_process, "STOP_TIMEOUT_S", 0.05)

    async def scene():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(1000)")
        await end_process(process)
        assert process.returncode == -signal.SIGKILL

    asyncio.run(scene())
