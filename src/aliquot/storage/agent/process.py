"""The agent's own process, started as `python -m aliquot.storage.agent.process FD FD`. It ends when the server does.

The first descriptor is for messages, the second for views, which come with a descriptor themselves.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
import threading
from contextlib import suppress

from aliquot.core.errors import AliquotError
from aliquot.logs import set_up_logs
from aliquot.storage.agent.agent import StorageAgent
from aliquot.storage.frames import frame, next_message, to_agent_decoder
from aliquot.storage.messages import AgentFailed, FromAgent, StartAgent

NICE = 5  # calls that need no files come first
_CLOSE_TIMEOUT_S = 4.0


async def serve(channel: socket.socket, hands: socket.socket) -> None:
    """Until the server hangs up."""
    reader, writer = await asyncio.open_connection(sock=channel)

    def send(message: FromAgent) -> None:
        writer.write(frame(message))

    begin = await next_message(reader, to_agent_decoder)
    if not isinstance(begin, StartAgent):
        return
    try:
        agent = StorageAgent(begin, send)
    except (AliquotError, OSError) as error:
        send(AgentFailed(str(error)))
        await writer.drain()
        return
    hands.setblocking(False)
    asyncio.get_running_loop().add_reader(hands.fileno(), agent.take, hands)
    figures = asyncio.create_task(agent.tell_figures())
    while (message := await next_message(reader, to_agent_decoder)) is not None:
        agent.hear(message)
    figures.cancel()
    # Threads that wait for an origin which does not answer must not keep the process.
    watchdog = threading.Timer(_CLOSE_TIMEOUT_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    await asyncio.to_thread(agent.close)
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then hangs up
    with suppress(OSError):
        os.nice(NICE)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # what all sandboxes have open is open here
    set_up_logs()
    with socket.socket(fileno=int(sys.argv[1])) as channel, socket.socket(fileno=int(sys.argv[2])) as hands:
        asyncio.run(serve(channel, hands))


if __name__ == "__main__":
    main()
