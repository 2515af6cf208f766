"""The agent's process, started as `python -m aliquot.storage.agent.process FD FD`. It ends when the server does.

The first descriptor carries messages. The second carries the messages about views, which come with descriptors.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from aliquot.core.errors import AliquotError
from aliquot.descriptors import raise_descriptor_limit
from aliquot.logs import set_up_logs
from aliquot.storage.agent.agent import StorageAgent
from aliquot.storage.frames import frame, next_message, to_agent_decoder
from aliquot.storage.messages import AgentFailed, FromAgent, StartAgent

NICE = 5  # below the server: calls that need no files go first
_CLOSE_TIMEOUT_S = 4.0


async def serve(channel: socket.socket, view_channel: socket.socket, max_handles: int) -> None:
    """Run the agent until the server closes the connection. `max_handles` limits the open files of all views."""
    reader, writer = await asyncio.open_connection(sock=channel)

    def send(message: FromAgent) -> None:
        writer.write(frame(message))

    begin = await next_message(reader, to_agent_decoder)
    if not isinstance(begin, StartAgent):
        return
    try:
        agent = StorageAgent(begin, send, max_handles, max_handles // 2)
    except (AliquotError, OSError) as error:
        send(AgentFailed(str(error)))
        await writer.drain()
        return
    view_channel.setblocking(False)
    asyncio.get_running_loop().add_reader(view_channel.fileno(), agent.receive_view, view_channel)
    figures = asyncio.create_task(agent.send_figures())
    while (message := await next_message(reader, to_agent_decoder)) is not None:
        agent.handle(message)
    figures.cancel()
    # A thread may wait for an origin that never answers: it must not keep the process alive.
    watchdog = threading.Timer(_CLOSE_TIMEOUT_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    await asyncio.to_thread(agent.close)
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then closes the connection
    with suppress(OSError):
        os.nice(NICE)
    max_files = raise_descriptor_limit()  # files open in any sandbox are open here
    set_up_logs()
    with socket.socket(fileno=int(sys.argv[1])) as channel, socket.socket(fileno=int(sys.argv[2])) as view_channel:
        asyncio.run(serve(channel, view_channel, max_files // 2))


if __name__ == "__main__":
    main()
