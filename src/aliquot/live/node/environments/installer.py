"""Install requirements in a process of their own, within limits of time, memory, processes and disk space."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec.structs import asdict

from aliquot.core.units import MIB
from aliquot.live.node.cgroups import NodeCgroups, SandboxCgroup
from aliquot.live.node.environments.disk import tree_bytes
from aliquot.live.node.environments.errors import BuildLimitError, RequirementsError
from aliquot.live.node.environments.installer_output import READ_BYTES, InstallerOutput
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.environments.pip_settings import InstallerSettings, has_pip, read_settings
from aliquot.live.node.environments.provider import EnvironmentBuild
from aliquot.live.node.isolation import Isolation, uid_range, walls
from aliquot.runtime import frames

_BUILDER = Path(frames.__file__).parent / "builder.py"
_INDEX_PROXY = Path(__file__).parent / "index_proxy.py"
_INDEX_PROXY_TIMEOUT_S = 60  # to start
_INSTALL = ("install", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--progress-bar=off")
_FIRST_UID = 64_000  # in the node's range, above those of sandboxes
_LOOK_EVERY_S = 0.2  # at the disk space of a build
_LOOK_FACTOR = 5  # the pause between two looks is at least this many times as long as a look
_BLOCK_BYTES = 512

Progress = Callable[[str, str], None]
log = structlog.get_logger(__name__)


class Installer:
    """Runs the builder for one environment after another. `install` may run several times at once."""

    def __init__(
        self,
        data: Path,
        isolation: Isolation,
        cgroups: NodeCgroups | None,
        limits: EnvironmentLimits,
        progress: Progress | None = None,
    ) -> None:
        self._data = data
        self._isolation = isolation
        self._cgroups = cgroups
        self._limits = limits
        self._progress = progress
        self._places: set[int] = set()  # numbers of the builds that run, for user ids and control groups

    async def install(self, build: EnvironmentBuild) -> None:
        """Install the requirements of a build. Raises `RequirementsError`, or `OSError` for a fault of the machine."""
        place = next(number for number in range(len(self._places) + 1) if number not in self._places)
        self._places.add(place)
        try:
            await self._install(build, place)
        finally:
            self._places.discard(place)

    async def _install(self, build: EnvironmentBuild, place: int) -> None:
        settings = await read_settings()
        self._report(build.name, f"installing {', '.join(sorted(build.requirements))}")
        output = InstallerOutput(lambda line: self._report(build.name, line))
        limits = self._limits
        cgroup = self._make_cgroup(place)
        try:
            async with self._index_proxy(settings, cgroup) as env:
                status = await self._run(build, place, cgroup, env, settings.visible, output)
        except TimeoutError:
            raise BuildLimitError(
                f"The requirements were not installed within {limits.timeout_s:g} s, the time limit of a build "
                f"(--limit build_s). The installer said last: {output.last_lines()}"
            ) from None
        finally:
            out_of_memory = cgroup is not None and cgroup.ran_out_of_memory()
            if cgroup is not None:
                await asyncio.get_running_loop().run_in_executor(None, cgroup.remove)
        if out_of_memory:
            raise BuildLimitError(
                f"The installation of the requirements exhausted its memory of {limits.memory_bytes // MIB} MiB "
                "(--limit build_memory_bytes). Prefer packages with wheels, which need not be compiled."
            )
        if status:
            raise RequirementsError(f"The requirements could not be installed: {output.error_lines()}")
        self._report(build.name, "complete")

    @contextlib.asynccontextmanager
    async def _index_proxy(
        self, settings: InstallerSettings, cgroup: SandboxCgroup | None
    ) -> AsyncIterator[dict[str, str]]:
        """Run the index proxy, if there are indexes to be reached. Yields the variables of the installation."""
        if not settings.needs_proxy:
            yield settings.env
            return
        token = secrets.token_urlsafe()
        fds = cgroup.open_procs() if cgroup is not None else ()
        uid = uid_range(self._data)[0] + _FIRST_UID - 1 if self._isolation.own_uid else None
        home = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}  # for its .netrc
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(_INDEX_PROXY), env=home | settings.proxy_env, cwd="/", pass_fds=fds,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        finally:
            for fd in fds:
                os.close(fd)
        assert process.stdin is not None  # noqa: S101 - asked for above
        assert process.stdout is not None  # noqa: S101
        request = asdict(settings.indexes) | {"token": token, "cgroup_fds": fds, "uid": uid}
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            async with asyncio.timeout(_INDEX_PROXY_TIMEOUT_S):
                port = (await process.stdout.readline()).decode().strip()
            if not port:
                raise OSError("the process that reaches package indexes did not start; the server's log says why")
            yield settings.through(f"http://127.0.0.1:{port}/{token}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _make_cgroup(self, place: int) -> SandboxCgroup | None:
        if self._cgroups is None or not self._cgroups.version:
            return None
        cgroup = self._cgroups.make(f"build-{place}", self._limits.processes)
        cgroup.limit_memory(self._limits.memory_bytes)
        return cgroup

    async def _run(
        self,
        build: EnvironmentBuild,
        place: int,
        cgroup: SandboxCgroup | None,
        env: dict[str, str],
        visible: tuple[str, ...],
        output: InstallerOutput,
    ) -> int:
        """Run the builder to its end and return its exit status. Raises `TimeoutError` and `BuildLimitError`."""
        fds = cgroup.open_procs() if cgroup is not None else ()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(_BUILDER), json.dumps(self._describe(build, place, fds, visible)),
                env=env, cwd="/", pass_fds=fds, limit=READ_BYTES,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        finally:
            for fd in fds:
                os.close(fd)
        try:
            async with asyncio.timeout(self._limits.timeout_s), self._bounded_disk(build, cgroup):
                assert process.stdout is not None  # noqa: S101 - asked for above
                while chunk := await process.stdout.read(READ_BYTES):
                    output.add(chunk)
                return await process.wait()
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await process.wait()

    def _describe(
        self, build: EnvironmentBuild, place: int, fds: tuple[int, ...], visible: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the settings of `aliquot.runtime.builder`. Nothing in them is secret."""
        around = walls(self._isolation, self._data, visible)
        around["writable"] = [str(build.directory), str(build.scratch)]
        uid: int | None = None
        if self._isolation.own_uid:
            first, offset = uid_range(self._data)[0], _FIRST_UID + place
            uid = offset if self._isolation.user else first + offset
            for directory in (build.directory, build.scratch):
                os.chown(directory, first + offset, first + offset)
        return {
            "isolation": around,
            "cgroup_fds": fds,
            "uid": uid,
            "processes": self._limits.processes,
            "file_bytes": self._limits.environment_bytes,
            "memory_bytes": self._limits.memory_bytes if not fds else None,
            "directory": str(build.directory),
            "scratch": str(build.scratch),
            "has_pip": has_pip(),
            "install": _INSTALL,
            "requirements": sorted(build.requirements),
        }

    @contextlib.asynccontextmanager
    async def _bounded_disk(self, build: EnvironmentBuild, cgroup: SandboxCgroup | None) -> AsyncIterator[None]:
        """Cancel the block when the build takes too much disk space, and raise `BuildLimitError` then."""
        body = asyncio.current_task()
        assert body is not None  # noqa: S101 - this is a coroutine
        problem: list[str] = []

        async def watch() -> None:
            problem.append(await self._wait_for_disk_problem(build, cgroup))
            body.cancel()

        watcher = asyncio.get_running_loop().create_task(watch())
        try:
            yield
        except asyncio.CancelledError:
            if not problem:
                raise
            body.uncancel()
            raise BuildLimitError(problem[0]) from None
        finally:
            watcher.cancel()

    async def _wait_for_disk_problem(self, build: EnvironmentBuild, cgroup: SandboxCgroup | None) -> str:
        loop = asyncio.get_running_loop()
        limits = self._limits
        while True:
            began_s = loop.time()
            used, free = await loop.run_in_executor(None, _disk_use, build, cgroup)
            if used > limits.environment_bytes:
                return (
                    f"The installation of the requirements took more than {limits.environment_bytes // MIB} MiB of "
                    "disk space, the limit of an environment (--limit environment_bytes). Require fewer packages."
                )
            if free < limits.free_bytes:
                return "The disk is almost full, so the installation of the requirements was ended. Tell the operator."
            await asyncio.sleep(max(_LOOK_EVERY_S, _LOOK_FACTOR * (loop.time() - began_s)))

    def _report(self, name: str, line: str) -> None:
        log.info("environment", environment=name, installer=line)
        if self._progress is not None:
            self._progress(name, line)


def _kill(pid: int) -> None:
    """Kill a builder, and its children if it has made a session of its own. The others end with its control group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


def _disk_use(build: EnvironmentBuild, cgroup: SandboxCgroup | None) -> tuple[int, int]:
    """Return the bytes that a build takes and those that are left on the disk. Blocks."""
    status = os.statvfs(build.directory)
    deleted = _deleted_bytes(cgroup.pids(), build.directory.stat().st_dev) if cgroup is not None else 0
    return tree_bytes(build.directory, build.scratch) + deleted, status.f_bavail * status.f_frsize


def _deleted_bytes(pids: list[int], device: int) -> int:
    """Return the size of files on the device that have no name any more and are open in these processes."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found = link.stat()
                    if found.st_nlink == 0 and stat.S_ISREG(found.st_mode) and found.st_dev == device:
                        sizes[found.st_ino] = found.st_blocks * _BLOCK_BYTES
    return sum(sizes.values())
