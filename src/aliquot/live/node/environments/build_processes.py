"""The two processes of a build: the builder inside of the isolation, and the index proxy outside.

The builder makes a socket in its own network, on which the index proxy listens. Its environment comes from the server
afterwards, because it contains the address.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from aliquot.live.node.cgroups import SandboxCgroup
from aliquot.live.node.environments.installer_output import READ_BYTES
from aliquot.live.node.environments.pip_settings import InstallerSettings
from aliquot.live.node.network.client import SandboxNetworks
from aliquot.runtime import frames

_BUILDER = Path(frames.__file__).parent / "builder.py"
_INDEX_PROXY = Path(__file__).parent / "index_proxy.py"
_INDEX_PROXY_TIMEOUT_S = 60  # to start
_NAME_BYTES = 100


@contextlib.contextmanager
def _procs(cgroup: SandboxCgroup | None) -> Any:  # noqa: ANN401 - a generator of descriptors
    """Open the files through which a process enters the build's control group, and close them afterwards."""
    fds = cgroup.open_procs() if cgroup is not None else ()
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


class BuilderProcess:
    """The process that installs one environment. It waits for `begin` before it runs any code of others."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self.pidfd: int | None = os.pidfd_open(process.pid)

    @staticmethod
    async def start(settings: dict[str, Any], cgroup: SandboxCgroup | None) -> "BuilderProcess":
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        with theirs, _procs(cgroup) as fds:
            described = settings | {"cgroup_fds": fds, "channel": theirs.fileno()}
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", str(_BUILDER), json.dumps(described),
                    env={}, cwd="/", pass_fds=(*fds, theirs.fileno()), limit=READ_BYTES,
                    stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                )  # fmt: skip
            except BaseException:
                mine.close()
                raise
        return BuilderProcess(process, mine)

    async def listener(self) -> socket.socket | None:
        """Wait for the socket on which the index proxy listens. Returns None if the builder has ended before."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._channel.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._channel.fileno())
        data, fds, _, _ = socket.recv_fds(self._channel, _NAME_BYTES, 1)
        return socket.socket(fileno=fds[0]) if data and fds else None

    async def join(self, networks: SandboxNetworks, number: int, tenant: str) -> None:
        """Let the builder's own network lead to the relay. Raises `OSError`."""
        made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        networks.assign(number, tenant)
        networks.add(number, self, lambda why: None if made.done() else made.set_result(why), configured=True)
        if why := await made:
            raise OSError(f"the build has no network: {why}")

    def begin(self, env: dict[str, str]) -> None:
        """Let the builder install the requirements, with these variables."""
        with contextlib.suppress(OSError):  # it has ended; its output says why
            self._channel.send(json.dumps(env).encode())

    async def read(self) -> bytes:
        """Return the next part of its output, or nothing when it has closed it."""
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        return await self._process.stdout.read(READ_BYTES)

    async def wait(self) -> int:
        return await self._process.wait()

    async def end(self) -> None:
        """Kill the builder if it still runs, and its children if it has made a session of its own.

        Others end with the pid namespace or with the control group.
        """
        self._channel.close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(self._process.pid) == self._process.pid:
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()
            await self._process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


@contextlib.asynccontextmanager
async def index_proxy(
    settings: InstallerSettings, listener: socket.socket, token: str, cgroup: SandboxCgroup | None, uid: int | None
) -> AsyncIterator[None]:
    """Run the index proxy on this socket, as this user. Raises `OSError` if it does not start."""
    home = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}  # for its .netrc
    with listener, _procs(cgroup) as fds:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(_INDEX_PROXY), env=home | settings.proxy_env, cwd="/",
            pass_fds=(*fds, listener.fileno()), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        more = {"token": token, "cgroup_fds": fds, "uid": uid, "listener": listener.fileno()}
    assert process.stdin is not None  # noqa: S101 - asked for above
    assert process.stdout is not None  # noqa: S101
    try:
        process.stdin.write(msgspec.json.encode(asdict(settings.indexes) | more) + b"\n")
        try:
            async with asyncio.timeout(_INDEX_PROXY_TIMEOUT_S):
                ready = await process.stdout.readline()
        except TimeoutError:
            ready = b""
        if not ready:
            raise OSError("the process that reaches package indexes did not start; the server's log says why")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
