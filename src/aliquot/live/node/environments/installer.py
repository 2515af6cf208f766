"""Install requirements in a process of their own, within limits of time, memory, processes and disk space."""

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import structlog

from aliquot.core.units import MIB
from aliquot.live.node.cgroups import NodeCgroups, SandboxCgroup
from aliquot.live.node.environments.build_processes import BuilderProcess, index_proxy
from aliquot.live.node.environments.disk import StoredMark, tree_bytes
from aliquot.live.node.environments.errors import BuildLimitError, RequirementsError
from aliquot.live.node.environments.installer_output import InstallerOutput
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.environments.pip_settings import InstallerSettings, has_pip, read_settings
from aliquot.live.node.environments.provider import EnvironmentBuild, Environments
from aliquot.live.node.isolation import Isolation, is_readable_by_others, uid_range, walls
from aliquot.live.node.network.client import SandboxNetworks

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
        networks: SandboxNetworks,
        limits: EnvironmentLimits,
        progress: Progress | None = None,
    ) -> None:
        self._data = data
        self._isolation = isolation
        self._cgroups = cgroups
        self._networks = networks
        self._networked = 0  # the number of networks so far
        self._limits = limits
        self._progress = progress
        self._places: set[int] = set()  # numbers of the builds that run, for user ids and control groups

    def open_environments(self, found: list[StoredMark], release: Callable[[Path], bool]) -> Environments:
        """Return the environments of the data directory, which are built by this installer."""
        return Environments(self._data, self.install, self._limits, found=found, release=release)

    async def install(self, build: EnvironmentBuild) -> None:
        """Install the requirements of a build. Raises `RequirementsError`, or `OSError` for a fault of the machine."""
        place = next(number for number in range(len(self._places) + 1) if number not in self._places)
        self._places.add(place)
        try:
            await self._install(build, place)
        finally:
            self._places.discard(place)

    async def _install(self, build: EnvironmentBuild, place: int) -> None:
        self._report(build.name, f"installing {', '.join(sorted(build.requirements))}")
        output = InstallerOutput(lambda line: self._report(build.name, line))
        limits = self._limits
        cgroup = self._make_cgroup(place)
        try:
            status = await self._run(build, place, cgroup, output)
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

    def _make_cgroup(self, place: int) -> SandboxCgroup | None:
        if self._cgroups is None or not self._cgroups.version:
            return None
        cgroup = self._cgroups.make(f"build-{place}", self._limits.processes)
        cgroup.limit_memory(self._limits.memory_bytes)
        return cgroup

    async def _run(
        self, build: EnvironmentBuild, place: int, cgroup: SandboxCgroup | None, output: InstallerOutput
    ) -> int:
        """Run the builder to its end and return its exit status. Raises `TimeoutError` and `BuildLimitError`."""
        settings = await read_settings()
        described = self._describe(build, place, settings.visible, has_cgroup=cgroup is not None)
        self._networked += 1
        network = -self._networked  # cells have the positive numbers
        async with asyncio.timeout(self._limits.timeout_s), self._bounded_disk(build, cgroup):
            builder = await BuilderProcess.start(described, cgroup)
            try:
                async with self._reach_indexes(builder, settings, network, build.tenant, cgroup) as (env, address):
                    output.hide(address)
                    builder.begin(env)
                    while chunk := await builder.read():
                        output.add(chunk)
                    return await builder.wait()
            finally:
                self._networks.remove(network)
                await builder.end()

    @contextlib.asynccontextmanager
    async def _reach_indexes(
        self,
        builder: BuilderProcess,
        settings: InstallerSettings,
        network: int,
        tenant: str,
        cgroup: SandboxCgroup | None,
    ) -> AsyncIterator[tuple[dict[str, str], str]]:
        """Connect a builder with the package indexes and the relay.

        Yields the variables of the installation and the address of the index proxy, if there is one.
        """
        listener = await builder.listener()
        if listener is not None and self._networks.are_own:
            await builder.join(self._networks, network, tenant)
        if listener is None or not settings.needs_proxy:
            if listener is not None:
                listener.close()
            yield settings.env, ""
            return
        token = secrets.token_urlsafe()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/{token}"
        # Another user may not be able to read the interpreter, which loads modules when it first needs them.
        has_user = self._isolation.own_uid and is_readable_by_others(mounts=False)
        uid = uid_range(self._data)[0] + _FIRST_UID - 1 if has_user else None
        async with index_proxy(settings, listener, token, cgroup, uid):
            yield settings.through(address), address

    def _describe(
        self, build: EnvironmentBuild, place: int, visible: tuple[str, ...], *, has_cgroup: bool
    ) -> dict[str, Any]:
        """Return the settings of `aliquot.runtime.builder`. Nothing in them is secret."""
        around = walls(self._isolation, self._data, visible, own_network=self._networks.are_own)
        around["writable"] = [str(build.directory), str(build.scratch)]
        uid: int | None = None
        if self._isolation.own_uid:
            first, offset = uid_range(self._data)[0], _FIRST_UID + place
            uid = offset if self._isolation.user else first + offset
            for directory in (build.directory, build.scratch):
                os.chown(directory, first + offset, first + offset)
        return {
            "isolation": around,
            "uid": uid,
            "processes": self._limits.processes,
            "file_bytes": self._limits.environment_bytes,
            "memory_bytes": None if has_cgroup else self._limits.memory_bytes,
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
