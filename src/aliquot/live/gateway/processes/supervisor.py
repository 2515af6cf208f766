"""Start gateway processes, start one again that has ended, and stop them."""

import asyncio
import socket
import sys
import time
from contextlib import suppress

import structlog

from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.processes.accepting import ENDED, ConnectionCounts
from aliquot.live.gateway.processes.frames import FORCED, GatewayStart
from aliquot.live.gateway.processes.gateway_link import GatewayLink
from aliquot.worker_process import STOP_TIMEOUT_S, RestartDelay, end_process

PING_S = 5.0
MAX_UNANSWERED_PINGS = 6  # then the process is taken to hang, and killed
_MODULE = "aliquot.live.gateway.processes.process"

log = structlog.get_logger("aliquot.gateway")


class GatewayProcesses:
    """The gateway processes of a server. All of them accept connections from the same listening sockets."""

    def __init__(self, app: Gateway, start: GatewayStart, listeners: list[socket.socket]) -> None:
        count = start.count
        self._app = app
        self._start = start
        self._listeners = listeners
        self._counts = ConnectionCounts.create(count)
        for listener in listeners:
            listener.listen(app.connections.backlog)
        self._links: list[GatewayLink | None] = [None] * count
        self._ready = [asyncio.Event() for _ in range(count)]
        self._tasks = [asyncio.create_task(self._keep(place)) for place in range(count)]
        self._stopping = False

    async def ready(self) -> None:
        """Wait until each of them has begun to accept connections."""
        for event in self._ready:
            await event.wait()

    async def stop(self) -> None:
        """Accept no more connections, and wait until all are answered or the time for it has passed."""
        self._stopping = True
        links = [link for link in self._links if link is not None]
        for link in links:
            link.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._start.grace_s + STOP_TIMEOUT_S):
                for link in links:
                    await link.stopped.wait()

    def force(self) -> None:
        """Do not wait for answers."""
        for link in self._links:
            if link is not None:
                link.stop(FORCED)

    async def close(self) -> None:
        """End all processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._counts.close()

    # --- one process ------------------------------------------------------------------------------------

    async def _keep(self, place: int) -> None:
        delay = RestartDelay()
        while True:
            started_s = time.monotonic()
            try:
                await self._run_once(place)
            except OSError as error:
                log.error("a gateway process cannot be started", error=str(error))  # noqa: TRY400 - the text says it
            if self._stopping:
                return
            lived_s = time.monotonic() - started_s
            delay_s = delay.after(lived_s)
            log.error("a gateway process ended and is restarted", lived_s=round(lived_s, 3), delay_s=delay_s)
            await asyncio.sleep(delay_s)

    async def _run_once(self, place: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fds = [theirs.fileno(), self._counts.fd, *(listener.fileno() for listener in self._listeners)]
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", _MODULE, str(place), *map(str, fds), pass_fds=fds
                )
            except BaseException:
                ours.close()
                raise
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: GatewayLink(self._app, self._start), sock=ours)
        self._links[place] = link
        ready = asyncio.create_task(self._announce(place, link))
        try:
            await self._watch(link, process)
        finally:
            self._links[place] = None
            self._counts.set(place, ENDED)
            ready.cancel()
            link.close()
            await end_process(process)

    async def _announce(self, place: int, link: GatewayLink) -> None:
        await link.ready.wait()
        self._ready[place].set()

    async def _watch(self, link: GatewayLink, process: asyncio.subprocess.Process) -> None:
        """Wait until the process has ended. Kill it if it does not answer for half a minute."""
        while not link.lost.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await link.lost.wait()
            except TimeoutError:
                link.ping()
            if link.unanswered_pings > MAX_UNANSWERED_PINGS:
                log.error("a gateway process does not answer and is killed", pid=process.pid)
                process.kill()
                return
