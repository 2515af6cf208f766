"""`aliquot node join`: keep a node agent running until it is stopped or refused."""

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from aliquot.cluster import messages
from aliquot.cluster.agent.dialling import dial
from aliquot.cluster.agent.process import AGAIN, MODULE, REFUSED, REMOVED, STOPPED
from aliquot.cluster.agent.settings import AgentOptions, key_files, load_membership
from aliquot.cluster.certificates import agent_context
from aliquot.cluster.messages import AgentGone
from aliquot.cluster.tokens import proof_of
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
            options = replace(options, instance=secrets.token_hex(8))
            code = await _run_once(options, stopped)
            if stopping.is_set() or code in (STOPPED, REFUSED, REMOVED):
                return code
            if code != AGAIN:
                await _tell_head(options)
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


async def _tell_head(options: AgentOptions) -> None:
    """Tell the head that the agent has ended, so that it need not wait for its silence."""
    data = Path(options.data)
    own = load_membership(data)
    if own is None:
        return
    try:
        connection, challenge = await dial(own.head, agent_context(key_files(data)) if own.head.tls else None)
    except (OSError, TimeoutError):
        return  # the head finds it out by itself
    proof = proof_of(own.secret, challenge.nonce, "gone", own.node, own.identity) if own.secret else b""
    connection.send(messages.encode(AgentGone(own.node, own.identity, proof, options.instance)))
    with suppress(ConnectionError, TimeoutError):
        await connection.next()  # the head closes it
