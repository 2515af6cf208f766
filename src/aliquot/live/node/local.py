"""The machine itself as a node: its devices, and sandboxes forked from zygotes."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aliquot.core.model import DeviceSpec
from aliquot.core.places import Place
from aliquot.core.units import MIB
from aliquot.live.bodies.json_check import CheckResult
from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.device.base import DriverContext
from aliquot.live.device.drivers import Drivers, watch_devices
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Launch, NestedRun, Node, NodeListener, Outcome, RunRequest, SandboxUsage, Status
from aliquot.live.node.cell import Cell
from aliquot.live.node.cells import CellPool
from aliquot.live.node.control_channel import SandboxChannel
from aliquot.live.node.dataset_views import NO_VIEWS, DatasetViews, NoDatasetViews
from aliquot.live.node.device_queues import DeviceQueues
from aliquot.live.node.environments import Environments, Progress, RequirementsError, sweep_environments
from aliquot.live.node.isolation import NO_ISOLATION, Isolation, choose, probe, walls
from aliquot.live.node.kinds import FunctionRuntime, UnknownKindError, runtime_of
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.sandbox_resources import MAX_PROCESSES, SCRATCH_BYTES, SandboxResources, tag_of
from aliquot.live.node.shared_buffers import NodeBuffers
from aliquot.live.node.states import GONE, IDLE
from aliquot.live.node.swaps import SandboxSwapper
from aliquot.live.node.zygotes import ZygotePool, ZygoteProcess, ZygoteProfile
from aliquot.live.store.records import PYTHON

RESULT_BYTES = 64 * MIB
MAX_PREPARED_ZYGOTES = 16  # zygotes that are started before they are needed
# How often busy sandboxes are looked after: their time limits, and the output of those that take longer than this.
TICK_S = 0.02


def _imports(launch: Launch) -> tuple[str, ...]:
    """What the zygote loads: for an app's functions the SDK, too."""
    return ("aliquot", *launch.imports) if launch.sdk else launch.imports


class LocalNode(Node):
    def __init__(
        self,
        data: Path,
        devices: Sequence[DeviceSpec],
        *,
        isolation: Isolation | None = None,
        result_bytes: int = RESULT_BYTES,
        scratch_bytes: int = SCRATCH_BYTES,
        processes: int = MAX_PROCESSES,
        progress: Progress | None = None,
        json_checker: JsonChecker | None = None,
        asked: str = "",
        shared_buffers_bytes: int = RESULT_BYTES,
        views: DatasetViews | None = None,
    ) -> None:
        """`asked`: what was said of the devices' driver beside which they are."""
        self._data = data.absolute()
        self._scratch_bytes = scratch_bytes
        self._most_processes = processes
        self._progress = progress
        self._json_checker = json_checker or JsonChecker()
        self.buffers = NodeBuffers(shared_buffers_bytes, result_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._devices = tuple(devices)
        self._asked = asked
        self._swapper = ThreadPoolExecutor(1, "swap")  # one: what leaves a device does so before what comes
        self.isolation = NO_ISOLATION if isolation is None else isolation
        self._detect = isolation is None
        self._result_bytes = result_bytes
        self._sandboxes: dict[int, LocalSandbox] = {}
        self._lanes = DeviceQueues(device.name for device in devices)
        self._busy: dict[LocalSandbox, None] = {}
        self._ticking = False
        self._ticked_s = 0.0
        self._started = False
        self._stopping = False
        self._watching: asyncio.Task[None] | None = None
        self._zygote_of: dict[int, ZygoteProcess] = {}  # by sandbox, until it has started
        self._views = views or NoDatasetViews()  # shows datasets to sandboxes

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return self._devices

    @property
    def unenforced(self) -> tuple[str, ...]:
        """What of its devices' parts nobody keeps functions to."""
        return tuple(line for kept in self._drivers.enforcement.values() for line in kept.lacking)

    async def start(self, listener: NodeListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._quarters, self._drivers = await self._loop.run_in_executor(None, self._prepare)
        self._swaps = SandboxSwapper(self._drivers, self._lanes, self._loop, self._swapper)
        self._cells = CellPool(self._quarters, self._cell_ended, self._loop)
        self._environments = Environments(self._data, self.isolation, self._progress)
        self._zygotes = ZygotePool(self._walls, self._loop)
        self._started = True
        self._warm_up(ZygoteProfile())  # the first cold start shall not wait for it
        if any(self._drivers.has_own_memory((device.name,)) for device in self._devices):
            self._watching = self._loop.create_task(watch_devices(self._drivers.complaints, self._device_lost))

    def _prepare(self) -> tuple[SandboxResources, Drivers]:
        """Find out about the machine, and remove what an earlier server left behind."""
        if self._detect:
            self.isolation = choose(probe(self._data))
        sweep_environments(self._data)
        # First the drivers: what an earlier server left standing still could not be ended.
        isolation = self.isolation
        around = DriverContext(self._data, self._asked, own_uid=isolation.own_uid, own_files=isolation.mount)
        drivers = Drivers(tag_of(self._data), self._devices if isolation.cgroups else (), around)
        return SandboxResources(self._data, self.isolation, self._scratch_bytes, self._most_processes), drivers

    def _walls(self, profile: ZygoteProfile) -> dict[str, Any]:
        return walls(self.isolation, self._data, profile.visible, profile.opening, views=profile.views)

    async def stop(self) -> None:
        self._stopping = True
        if not self._started:  # it was refused
            self._json_checker.close()
            self._swapper.shutdown()
            return
        if self._watching is not None:
            self._watching.cancel()
        for sandbox in list(self._sandboxes.values()):
            self._end(sandbox)
        await self._cells.end_all()
        self._json_checker.close()
        await self._environments.stop()
        self._zygotes.stop()
        await self._loop.run_in_executor(None, self._swapper.shutdown)
        await self._loop.run_in_executor(None, self._quarters.close)
        await self._loop.run_in_executor(None, self._drivers.close)

    # --- commands ---------------------------------------------------------------------------------------

    def prepare(self, launch: Launch) -> None:
        if not self._stopping and len(self._zygotes) < MAX_PREPARED_ZYGOTES and launch.kind == PYTHON:
            self._spawn(self._prepare_zygote(launch))

    async def _prepare_zygote(self, launch: Launch) -> None:
        profile = ZygoteProfile(imports=_imports(launch), views=self._sees_datasets(launch))
        if launch.requirements:
            try:
                python = await self._environments.python(launch.requirements)
            except (RequirementsError, OSError):
                return
            profile = replace(profile, python=str(python))
        self._warm_up(profile)

    def _sees_datasets(self, launch: Launch) -> bool:
        return bool(launch.datasets) and self.isolation.views

    def _warm_up(self, profile: ZygoteProfile) -> None:
        self._zygotes.get(profile).when_ready(self._cells.keep_ready, lambda _status, _text: None)

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        self._drivers.place(sandbox, launch.place)
        told = self._drivers.environment(sandbox, launch.share, launch.device_bytes)
        if told:
            launch = replace(launch, env={**launch.env, **told})
        handle = LocalSandbox(sandbox, launch, self, self._loop, self._result_bytes)
        self._sandboxes[sandbox] = handle
        self._lanes.do(launch.place, lambda: self._launch(handle))

    def _launch(self, sandbox: LocalSandbox) -> None:
        if sandbox.state == GONE:
            return
        launch = sandbox.launch
        try:
            runtime = runtime_of(launch.kind)
        except UnknownKindError as error:
            self._loop.call_soon(self._failed, sandbox, Status.DEVELOPER_ERROR, str(error))
            return
        if launch.datasets and not self.isolation.views:
            self._loop.call_soon(self._failed, sandbox, Status.INTERNAL_ERROR, NO_VIEWS)
        elif not runtime.python:
            self._launch_from(ZygoteProfile(visible=runtime.visible), sandbox, runtime)
        elif launch.requirements:
            self._spawn(self._launch_in_environment(sandbox, runtime))
        else:
            self._launch_from(ZygoteProfile(imports=_imports(launch)), sandbox, runtime)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch_in_environment(self, sandbox: LocalSandbox, runtime: FunctionRuntime) -> None:
        launch = sandbox.launch
        try:
            python = await self._environments.python(launch.requirements)
        except RequirementsError as error:
            self._failed(sandbox, Status.DEVELOPER_ERROR, str(error))
        except OSError as error:
            self._failed(sandbox, Status.INTERNAL_ERROR, f"The environment could not be built: {error}.")
        else:
            self._launch_from(ZygoteProfile(str(python), _imports(launch)), sandbox, runtime)

    def _launch_from(self, profile: ZygoteProfile, sandbox: LocalSandbox, runtime: FunctionRuntime) -> None:
        opening = self._drivers.opening(sandbox.launch.place)
        profile = replace(profile, opening=opening, views=self._sees_datasets(sandbox.launch))
        zygote = self._zygotes.get(profile)
        self._zygote_of[sandbox.number] = zygote
        zygote.when_ready(
            lambda zygote: self._move_in(zygote, sandbox, runtime),
            lambda status, text: self._failed(sandbox, status, text),
        )

    def _failed(self, sandbox: LocalSandbox, status: Status, text: str) -> None:
        if sandbox.state != GONE:
            sandbox.fail(status, text)

    def _move_in(self, zygote: ZygoteProcess, sandbox: LocalSandbox, runtime: FunctionRuntime) -> None:
        if sandbox.state == GONE:
            return
        launch = sandbox.launch
        memory_bytes = launch.memory_bytes + self._drivers.host_bytes(launch.place, launch.device_bytes)
        try:
            cell = self._cells.take(zygote)
            data_bytes = self._quarters.limit_memory(cell, memory_bytes)
        except OSError as error:
            sandbox.fail(Status.INTERNAL_ERROR, f"The sandbox could not be made: {error}.")
            return
        cell.when_alive(lambda: self._attach(sandbox, cell))
        view = cell.take_view()
        if view is not None:
            self._views.open(sandbox.number, launch, view)
        sandbox.move_in(cell, runtime.command(memory_bytes), data_bytes, self._side(sandbox, runtime))
        self._look_after(sandbox)

    def _side(self, sandbox: LocalSandbox, runtime: FunctionRuntime) -> SandboxChannel | None:
        """For what has a use for it: the SDK's functions, and those of a group."""
        launch = sandbox.launch
        wanted = runtime.python and (launch.sdk or launch.members)
        return SandboxChannel(sandbox, self.buffers.open(), self._loop) if wanted else None

    def _attach(self, sandbox: LocalSandbox, cell: Cell) -> None:
        group = cell.process.group
        moved = self._drivers.attach(sandbox.number, cell.process.pids())
        if group is not None:
            if moved is not None:
                group.move(moved)
            self._drivers.count_memory(sandbox.number, group.usage)

    def run(self, sandbox: int, request: RunRequest) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is None or handle.state != IDLE:
            if handle is not None and handle.state != GONE:
                raise ValueError(f"sandbox {sandbox} is busy; it takes one run at a time")
            return  # its loss is on its way to the listener
        if not handle.run(request):
            self._loop.call_soon(handle.not_begun)
        self._look_after(handle)

    def output(self, sandbox: int) -> tuple[tuple[str, ...], ...]:
        handle = self._sandboxes.get(sandbox)
        return (handle.logs.lines, *handle.waiting) if handle is not None and handle.cell is not None else ()

    def stop_sandbox(self, sandbox: int) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is None or handle.cell is None:
            self._drivers.detach(sandbox)
        if handle is not None:
            self._end(handle)

    def keeps(self, place: Place) -> bool:
        return self._drivers.keeps(place)

    def set_slice(self, sandbox: int, share: float, ceiling: float) -> None:
        self._drivers.resize(sandbox, share, ceiling)

    def unload(self, sandbox: int) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is not None:
            self._swaps.out(handle)

    def load(self, sandbox: int) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is not None:
            self._lanes.do(handle.launch.place, lambda: self._swaps.back(handle, self._loaded))

    def _loaded(self, sandbox: LocalSandbox) -> None:
        if sandbox.state != GONE:
            self._listener.memory_loaded(sandbox.number)

    def usage(self) -> list[SandboxUsage]:
        return [
            SandboxUsage(sandbox.number, sandbox.cell.process.pid, *used)
            for sandbox in self._sandboxes.values()
            if sandbox.cell is not None and (used := sandbox.cell.process.usage())
        ]

    def used(self) -> list[DeviceUsage]:
        return self._drivers.used()

    # --- what sandboxes tell ----------------------------------------------------------------------------

    def initialised(self, sandbox: LocalSandbox, seconds: float, logs: tuple[str, ...]) -> None:
        self._busy.pop(sandbox, None)
        self._keep_ready(sandbox)
        self._listener.sandbox_started(sandbox.number, seconds, logs)

    def finished(self, sandbox: LocalSandbox, outcome: Outcome) -> None:
        self._busy.pop(sandbox, None)
        self._listener.run_finished(sandbox.number, outcome)

    def lost(self, sandbox: LocalSandbox, outcome: Outcome) -> None:
        self._end(sandbox)
        self._listener.sandbox_lost(sandbox.number, outcome)

    def refused(self, sandbox: LocalSandbox) -> None:
        self._end(sandbox)
        self._listener.sandbox_refused(sandbox.number)

    def _device_lost(self, device: str, why: str) -> None:
        self._devices = tuple(known for known in self._devices if known.name != device)
        for sandbox in [each for each in self._sandboxes.values() if device in each.launch.place]:
            self._failed(sandbox, Status.INTERNAL_ERROR, f"The device {device} was lost: {why}.")
        self._listener.device_lost(device, why)

    def began_inside(self, sandbox: LocalSandbox, function: str) -> NestedRun | str:
        return self._listener.began_inside(sandbox.number, function)

    def ended_inside(self, sandbox: LocalSandbox, outcome: Outcome) -> NestedRun | None:
        return self._listener.ended_inside(sandbox.number, outcome)

    def check_json(self, result: memoryview, answer: Callable[[CheckResult], None]) -> None:
        self._json_checker.submit(result, answer)

    def _cell_ended(self, cell: Cell) -> None:
        if isinstance(cell.tenant, LocalSandbox):
            self._drivers.detach(cell.tenant.number)
            self._lanes.ended(cell.tenant.launch.place, cell.tenant.number)

    def _end(self, sandbox: LocalSandbox) -> None:
        self._sandboxes.pop(sandbox.number, None)
        self._busy.pop(sandbox, None)
        self._keep_ready(sandbox)
        if sandbox.cell is not None and not sandbox.cell.has_ended:
            self._lanes.ending(sandbox.launch.place, sandbox.number)
        self._drivers.let_go(sandbox.number)
        if sandbox.side is not None:
            self.buffers.close(sandbox.side.buffers)
        sandbox.kill()
        if sandbox.launch.datasets:
            self._views.close(sandbox.number)

    def _keep_ready(self, sandbox: LocalSandbox) -> None:
        """It has started, or will not: only now, for the next cell's fork shall not compete with a start."""
        zygote = self._zygote_of.pop(sandbox.number, None)
        if zygote is not None:
            self._loop.call_soon(self._cells.keep_ready, zygote)

    # --- time -------------------------------------------------------------------------------------------

    def _look_after(self, sandbox: LocalSandbox) -> None:
        self._busy[sandbox] = None
        if not self._ticking:
            self._ticking = True
            self._ticked_s = time.perf_counter()
            self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        if not self._busy:
            self._ticking = False
            return
        before, self._ticked_s = self._ticked_s, time.perf_counter()
        for sandbox in list(self._busy):
            sandbox.tick(self._ticked_s, before)
        self._loop.call_later(TICK_S, self._tick)
