"""`aliquot node join`: keep a node agent running until it is stopped or refused."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from aliquot.cluster.agent.process import AGAIN, MODULE, REFUSED, REMOVED, STOPPED
from aliquot.cluster.agent.settings import AgentOptions
from aliquot.worker_process import RestartDelay


async def keep_running(options: AgentOptions, say: Callable[[str], None]) -> int:
    """Start the agent, and again when it dies. Return the exit code of the last one. `say` is for people."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    delay = RestartDelay()
    stopped = loop.create_task(stopping.wait())
    try:
        while True:
            began_s = time.monotonic()
            code = await _run_once(options, stopped)
            if stopping.is_set() or code in (STOPPED, REFUSED, REMOVED):
                return code
            delay_s = 0.0 if code == AGAIN else delay.after(time.monotonic() - began_s)
            say(f"the agent has ended ({code}); it is started again")
            await asyncio.wait((stopped,), timeout=delay_s)
            if stopping.is_set():
                return STOPPED
    finally:
        stopped.cancel()


async def _run_once(options: AgentOptions, stopped: "asyncio.Task[bool]") -> int:
    # Its own group of processes, so that Ctrl-C does not reach it before it has let its calls end.
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert agent.stdin is not None  # noqa: S101 - a pipe
    agent.stdin.write(msgspec.json.encode(options) + b"\n")
    ended = asyncio.create_task(agent.wait())
    await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        agent.terminate()
    return await ended
