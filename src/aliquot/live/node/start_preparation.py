"""Prepare a start, before it has a cell: find or build the function's environment, and find or start a zygote."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from aliquot.live.device.drivers import Drivers
from aliquot.live.node.base import Launch, Outcome, Status
from aliquot.live.node.cells import MAX_READY_CELLS, CellPool
from aliquot.live.node.environments.errors import RequirementsError
from aliquot.live.node.environments.provider import Environments
from aliquot.live.node.isolation import Isolation
from aliquot.live.node.kind_packages import KindPackages
from aliquot.live.node.kinds import FunctionRuntime, UnknownKindError, runtime_of
from aliquot.live.node.sandbox_views import NO_VIEWS
from aliquot.live.node.states import IMPORTS_TIMED_OUT, StartError, error
from aliquot.live.node.zygote_process import IMPORT_TIMEOUT_S, ZygoteProcess, ZygoteProfile
from aliquot.live.node.zygotes import PLATFORM, ZygotePool
from aliquot.live.store.records import KERNEL, PYTHON
from aliquot.runtime.mounts import DATASETS, VOLUMES

FILL_UP_DELAY_S = 0.3  # after the first cell: the server is about to answer its first requests
SDK_MODULES = ("aliquot.sdk.app", "aliquot.sdk.chains", "aliquot.sdk.workflow.task")  # they import all others


class MissingEnvironmentError(Exception):
    """The environment of a launch is not built, so the call must wait for it elsewhere."""


def _imports(launch: Launch) -> tuple[str, ...]:
    """Return the modules that the zygote imports: those of the launch, and the SDK if the function uses it."""
    if launch.module:
        return (launch.module,)
    return (*SDK_MODULES, *launch.imports) if launch.sdk else launch.imports


class StartPreparation:
    """Finds or makes the environment and the zygote of a launch."""

    def __init__(
        self,
        environments: Environments,
        zygotes: ZygotePool,
        cells: CellPool,
        drivers: Drivers,
        isolation: Isolation,
        packages: KindPackages,
    ) -> None:
        self._environments = environments
        self._zygotes = zygotes
        self._cells = cells
        self._drivers = drivers
        self._isolation = isolation
        self._packages = packages
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def stop(self) -> None:
        """Cancel what is being prepared. Nothing is reported any more."""
        self._stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- for a start ---------------------------------------------------------------------------------------------

    def runtime(self, launch: Launch) -> FunctionRuntime:
        """Return the runtime of the function's kind. Raises `StartError` when the node cannot run the function."""
        if (launch.datasets or launch.volumes) and not self._isolation.views:
            raise StartError(Status.INTERNAL_ERROR, NO_VIEWS)
        try:
            return runtime_of(launch.kind, self._packages)
        except UnknownKindError as failure:
            raise StartError(Status.DEVELOPER_ERROR, str(failure)) from failure

    async def zygote(self, launch: Launch, runtime: FunctionRuntime) -> ZygoteProcess:
        """Return a zygote with the launch's imports, within its time limit.

        Raises `StartError`, or `MissingEnvironmentError` if there is no environment for it.
        """
        profile = ZygoteProfile(
            self._python(launch) if runtime.python else self._packages.python,
            _imports(launch) if runtime.python else (),
            runtime.visible,
            self._drivers.access(launch.place),
            self._views(launch),
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(launch.timeout_ms / 1000):
                return await self._zygotes.ready(profile, launch.tenant)
        if (zygote := self._zygotes.ready_unread(profile)) is not None:
            return zygote
        text = IMPORTS_TIMED_OUT.format(", ".join(profile.imports) or "none", launch.timeout_ms)
        raise StartError(Status.DEVELOPER_ERROR, text, timed_out=True)

    def _python(self, launch: Launch) -> str:
        """Return the interpreter of an environment with the launch's requirements."""
        if launch.module:  # it is part of the platform, and needs the libraries that the server has
            return sys.executable
        if not launch.requirements:
            return self._packages.python
        found = self._environments.find(launch.requirements, launch.tenant)
        if found is None:
            raise MissingEnvironmentError
        return str(found)

    def _views(self, launch: Launch) -> tuple[str, ...]:
        """Return the mount points of what the function sees."""
        wanted = ((DATASETS, launch.datasets), (VOLUMES, launch.volumes))
        return tuple(place for place, names in wanted if names and self._isolation.views)

    # --- ahead of a start ----------------------------------------------------------------------------------------

    def has_environment(self, requirements: tuple[str, ...]) -> bool:
        return self._environments.has(requirements)

    def build_environment(
        self, requirements: tuple[str, ...], tenant: str, then: Callable[[Outcome | None], None]
    ) -> None:
        """Build an environment, and call `then` with None, or with the outcome for calls that cannot run."""
        self._spawn(self._build(requirements, tenant, then))

    async def _build(self, requirements: tuple[str, ...], tenant: str, then: Callable[[Outcome | None], None]) -> None:
        failure: Outcome | None = None
        try:
            await self._environments.build(requirements, tenant)
        except RequirementsError as problem:
            failure = Outcome(Status.DEVELOPER_ERROR, error(str(problem)), 0.0)
        except OSError as problem:
            failure = Outcome(Status.INTERNAL_ERROR, error(f"The environment could not be built: {problem}."), 0.0)
        if not self._stopped:
            then(failure)

    def prepare(self, launch: Launch) -> None:
        """Prepare the environment and the zygote for sandboxes of this launch, if there is space for another zygote."""
        if not self._stopped and self._zygotes.has_space(launch.tenant) and launch.kind in (PYTHON, KERNEL):
            self._spawn(self._prepare(launch))

    async def _prepare(self, launch: Launch) -> None:
        try:
            if launch.requirements:
                await self._environments.build(launch.requirements, launch.tenant)
            python = self._python(launch)
        except (RequirementsError, MissingEnvironmentError, OSError):
            return  # the next call reports it, if the reason persists
        profile = ZygoteProfile(python, _imports(launch), views=self._views(launch))
        await self._warm_up(profile, launch.tenant)

    def warm_up(self) -> None:
        """Start the zygote of functions without requirements and imports, with as many ready cells as after a start."""
        self._spawn(self._fill_up(ZygoteProfile(self._packages.python)))

    async def _fill_up(self, profile: ZygoteProfile) -> None:
        await self._warm_up(profile, PLATFORM)
        await asyncio.sleep(FILL_UP_DELAY_S)
        await self._warm_up(profile, PLATFORM, MAX_READY_CELLS)

    async def _warm_up(self, profile: ZygoteProfile, tenant: str, cells: int = 1) -> None:
        try:
            async with asyncio.timeout(IMPORT_TIMEOUT_S):
                zygote = await self._zygotes.ready(profile, tenant)
        except (StartError, TimeoutError):
            return  # the next start reports it, if the reason persists
        self._cells.keep_ready(zygote, cells)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
