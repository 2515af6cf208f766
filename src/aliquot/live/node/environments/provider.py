"""Environments: each set of requirements is installed once, kept in the data directory, and shared by functions."""

import asyncio
import contextlib
import functools
import hashlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from aliquot.durable_files import remove_directory
from aliquot.live.node.environments.build_queue import BuildFailures, BuildQueue, BuildStatus
from aliquot.live.node.environments.disk import (
    DIRECTORY,
    SCRATCH,
    EnvironmentMark,
    StoredEnvironments,
    StoredMark,
    tree_bytes,
    write_mark,
)
from aliquot.live.node.environments.errors import BuildsWaitingError, RequirementsError
from aliquot.live.node.environments.limits import EnvironmentLimits

T = TypeVar("T")


class EnvironmentBuild(Struct, frozen=True):
    """An environment to be built, in empty directories."""

    name: str
    tenant: str  # the first that asked for it
    directory: Path
    scratch: Path  # for temporary files, removed after the build
    requirements: tuple[str, ...]


class _PendingBuild:
    """A build that waits or runs."""

    def __init__(self, requirements: tuple[str, ...], asked_s: float, done: asyncio.Future[None]) -> None:
        self.requirements = requirements
        self.asked_s = asked_s  # the event loop's time
        self.tenants: dict[str, None] = {}  # who asked for it
        self.done = done
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # perhaps nobody waits for it


class Environments:
    """Finds the environment of a set of requirements, and builds those that are missing."""

    def __init__(
        self,
        data: Path,
        install: Callable[[EnvironmentBuild], Awaitable[None]],
        limits: EnvironmentLimits,
        *,
        found: list[StoredMark],
        release: Callable[[Path], bool],
    ) -> None:
        """`install` fills the directory of a build, or raises `RequirementsError` or `OSError`.

        `release` ends idle processes that use an interpreter, and returns False if one of them is busy.
        """
        self._directory = data / DIRECTORY
        self._install = install
        self._limits = limits
        self._stored = StoredEnvironments(limits, lambda name: release(self._interpreter(name)), found)
        self._queue = BuildQueue(limits.builds, limits.waiting, self._begin)
        self._failures = BuildFailures()
        self._pending: dict[str, _PendingBuild] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # One thread, so that the deletion of an environment precedes its next build.
        self._thread = ThreadPoolExecutor(1, "environments")
        self._stopped = False

    def _interpreter(self, name: str) -> Path:
        return self._directory / name / "bin" / "python"

    def has(self, requirements: tuple[str, ...]) -> bool:
        """Return whether the environment is built."""
        return self._is_complete(environment_name(requirements))

    def _is_complete(self, name: str) -> bool:
        return name in self._stored and name not in self._pending

    def find(self, requirements: tuple[str, ...], tenant: str) -> Path | None:
        """Return the interpreter of an environment that the tenant is about to use, or None if it must be built."""
        name = environment_name(requirements)
        python = self._interpreter(name)
        if not self._is_complete(name):
            return None
        if not python.exists():  # deleted by hand
            self._stored.forget(name)
            return None
        mark = self._stored.use(name, tenant, now_s=time.time())
        if mark is not None and not self._stopped:
            self._thread.submit(_note_use, self._directory / name, mark)
        return python

    async def build(self, requirements: tuple[str, ...], tenant: str) -> None:
        """Build an environment unless it is there. Raises `RequirementsError` or `OSError`.

        Requests for an environment that is being built wait for that build. A build that failed lately is not repeated.
        """
        check_requirements(requirements)
        name = environment_name(requirements)
        if self._is_complete(name):
            return
        now_s = asyncio.get_running_loop().time()
        if (failure := self._failures.find(name, now_s=now_s)) is not None:
            wait = f" It is tried again when it is asked for in {failure.retry_at_s - now_s:.0f} s or later."
            raise type(failure.error)(f"{failure.error}{wait}")
        pending = self._pending.get(name)
        if pending is None:
            self._check_waiting(tenant)
            done = asyncio.get_running_loop().create_future()
            pending = self._pending[name] = _PendingBuild(requirements, now_s, done)
        pending.tenants[tenant] = None
        if not self._queue.is_full(tenant):
            self._queue.add(name, tenant)
        await asyncio.shield(pending.done)

    def status(self, *, now_s: float) -> list[BuildStatus]:
        """Return the builds that run or wait, in the order in which they were asked for."""
        return [
            BuildStatus(tuple(each.tenants), each.requirements, self._queue.is_running(name), now_s - each.asked_s)
            for name, each in self._pending.items()
        ]

    def _check_waiting(self, tenant: str) -> None:
        if self._queue.is_full(tenant):
            raise BuildsWaitingError(
                f"{self._limits.waiting} environments of namespace {tenant} wait to be built, and no more may. "
                "Call again when one of them is built, or give functions the same requirements."
            )

    # --- builds --------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        """Begin a build whose turn has come."""
        task = asyncio.get_running_loop().create_task(self._run(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str) -> None:
        pending = self._pending[name]
        failure: Exception | None = None
        try:
            await self._build(name, pending)
            self._failures.forget(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must learn of it
            failure = error if isinstance(error, RequirementsError | OSError) else OSError(str(error))
            self._failures.add(name, failure, now_s=asyncio.get_running_loop().time())
        finally:
            del self._pending[name]
            if failure is not None:
                pending.done.set_exception(failure)
            elif not pending.done.done():
                pending.done.set_result(None)
            if not self._stopped:
                self._queue.ended(name)

    async def _build(self, name: str, pending: _PendingBuild) -> None:
        build = EnvironmentBuild(
            name,
            next(iter(pending.tenants)),
            self._directory / name,
            self._directory / f"{name}{SCRATCH}",
            pending.requirements,
        )
        await self._in_thread(_clear, build)
        try:
            await self._install(build)
            size = await self._in_thread(tree_bytes, build.directory)
            mark = EnvironmentMark(pending.requirements, tuple(pending.tenants), size)
            for other in self._stored.make_space(name, mark, now_s=time.time()):
                await self._in_thread(remove_directory, self._directory / other)
            await self._in_thread(write_mark, build.directory, mark)
        except BaseException:
            self._stored.forget(name)
            await self._in_thread(remove_directory, build.directory)
            raise
        finally:
            await self._in_thread(remove_directory, build.scratch)

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *args))

    async def stop(self) -> None:
        """End all builds. Nothing is built any more."""
        self._stopped = True
        for pending in self._pending.values():
            pending.done.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)


@functools.lru_cache(maxsize=4096)
def environment_name(requirements: tuple[str, ...]) -> str:
    """Return the name of the environment with these requirements, in any order."""
    version = f"{sys.implementation.cache_tag} {sys.version_info[:3]} {sys.base_prefix}"
    content = json.dumps([version, sorted({requirement.strip() for requirement in requirements})])
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def check_requirements(requirements: tuple[str, ...]) -> None:
    for requirement in requirements:
        if requirement.lstrip().startswith("-") or "\n" in requirement or not requirement.strip():
            raise RequirementsError(
                f"The requirement {requirement!r} is not one: give what pip takes as a package, such as 'numpy>=2'."
            )


def _clear(build: EnvironmentBuild) -> None:
    for directory in (build.directory, build.scratch):
        remove_directory(directory)
        directory.mkdir(parents=True)


def _note_use(directory: Path, mark: EnvironmentMark) -> None:
    """Write the mark again, whose time is that of the last use."""
    with contextlib.suppress(OSError):  # on a full disk it may be removed too early, and is built again
        write_mark(directory, mark)
