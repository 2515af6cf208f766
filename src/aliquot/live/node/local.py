"""The machine itself as a node: its devices, and sandboxes that are forked from zygotes."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct
from msgspec.structs import replace

from aliquot.budgets import MappingBudget
from aliquot.core.model import DeviceSpec
from aliquot.core.places import Place
from aliquot.core.units import MIB
from aliquot.descriptors import DescriptorShares, divide_descriptors
from aliquot.live.bodies.json_check import CheckResult
from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.device.drivers import Drivers, watch_devices
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.active_sandboxes import ActiveSandboxes
from aliquot.live.node.base import Launch, NestedRun, Node, NodeListener, Outcome, RunRequest, SandboxUsage, Status
from aliquot.live.node.cell import Cell
from aliquot.live.node.cells import MAX_READY_CELLS, CellPool
from aliquot.live.node.device_attachment import DeviceAttachment
from aliquot.live.node.device_queues import DeviceQueues
from aliquot.live.node.environments.build_queue import BuildStatus
from aliquot.live.node.environments.disk import DIRECTORY, StoredMark, load_marks
from aliquot.live.node.environments.installer import Installer, Progress
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.executors import Executor, Executors
from aliquot.live.node.handed_runs import HandedRuns, runs_ahead
from aliquot.live.node.isolation import NO_ISOLATION, Isolation, IsolationProbe, choose, walls
from aliquot.live.node.kernel_sandbox import GraphSandbox
from aliquot.live.node.kind_packages import find_packages
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.moves import Report, SandboxMover
from aliquot.live.node.network.client import NodeNetwork
from aliquot.live.node.reply_memory import ReplyMemory
from aliquot.live.node.sandbox_budget import SandboxBudget, free_zygote
from aliquot.live.node.sandbox_resources import MAX_PROCESSES, SCRATCH_BYTES, SandboxResources, open_drivers
from aliquot.live.node.sandbox_views import SandboxViews
from aliquot.live.node.shared_buffers import NodeBuffers
from aliquot.live.node.start_preparation import MissingEnvironmentError, StartPreparation
from aliquot.live.node.states import GONE, IDLE, StartError, error
from aliquot.live.node.swaps import SandboxSwapper
from aliquot.live.node.zygote_process import ZygoteProfile
from aliquot.live.node.zygotes import ZygotePool

log = structlog.get_logger("aliquot.node")

RESULT_BYTES = 64 * MIB
MIN_REPLIES = 5  # of the largest size, so that a tenant gets memory for one of them beside a greedy tenant
DEFAULT_SHARES = divide_descriptors(4096)
STOP_TIMEOUT_S = 5  # for sandboxes, before their zygotes are ended


class _PendingStart(Struct, frozen=True):
    """A start that has no cell yet and can be cancelled."""

    launch: Launch
    task: asyncio.Task[None]


class LocalNode(Node):
    def __init__(
        self,
        data: Path,
        devices: Sequence[DeviceSpec],
        *,
        isolation: Isolation | None = None,
        isolation_probe: IsolationProbe | None = None,
        result_bytes: int = RESULT_BYTES,
        scratch_bytes: int = SCRATCH_BYTES,
        max_processes: int = MAX_PROCESSES,
        progress: Progress | None = None,
        json_checker: JsonChecker | None = None,
        driver_options: str = "",
        shared_buffers_bytes: int = RESULT_BYTES,
        replies_bytes: int = 16 * RESULT_BYTES,
        descriptors: DescriptorShares = DEFAULT_SHARES,
        views: SandboxViews | None = None,
        environment_limits: EnvironmentLimits | None = None,
        network: NodeNetwork | None = None,
        python: Path | None = None,
        beside_gateway: bool = True,
    ) -> None:
        """Isolation is detected by default, by a probe that may run already.

        `driver_options` follows the driver's name in `--devices`. `python` replaces the environment of Python's kind.
        """
        self._data = data.absolute()
        self._scratch_bytes, self._max_processes = scratch_bytes, max_processes
        self._progress, self._python = progress, python
        self._json_checker, self._network = json_checker or JsonChecker(), network or NodeNetwork()
        shared_bytes = MappingBudget("shared buffers", shared_buffers_bytes, descriptors.shared_buffers)
        self.buffers = NodeBuffers(shared_bytes, result_bytes, beside_gateway=beside_gateway)
        self._sandbox_budget = SandboxBudget(descriptors)
        self._replies = max(replies_bytes, MIN_REPLIES * result_bytes), max(descriptors.reply_bodies, MIN_REPLIES)
        self._tasks = set[asyncio.Task[None]]()
        self._devices, self._driver_options = tuple(devices), driver_options
        self._swap_executor = ThreadPoolExecutor(1, "swap")
        self.isolation, self._detect = isolation or NO_ISOLATION, isolation is None
        self._isolation_probe, self._result_bytes = isolation_probe, result_bytes
        self._pending, self._sandboxes = dict[int, _PendingStart](), dict[int, LocalSandbox]()
        self._queues = DeviceQueues(device.name for device in devices)
        self._started = self._stopping = False
        self._watching: asyncio.Task[None] | None = None
        self._views, self._environment_limits = views or SandboxViews(), environment_limits or EnvironmentLimits()

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return self._devices

    @property
    def unenforced(self) -> tuple[str, ...]:
        """The limits that are not enforced here, one line each."""
        return (*self._drivers.lacking, *self._resources.lacking)

    async def start(self, listener: NodeListener) -> None:
        self._listener, self._loop = listener, asyncio.get_running_loop()
        packages = self._loop.run_in_executor(None, find_packages, self._data, self._python)
        self._resources, self._drivers, environments = await self._loop.run_in_executor(None, self._prepare_machine)
        self._attachment = DeviceAttachment(self._drivers, self._loop)
        self._swapper = SandboxSwapper(self._drivers, self._queues, self._loop, self._swap_executor)
        self._mover = SandboxMover(self._drivers, self._loop, self._swap_executor)
        self._networks = self._network.open(own=self.isolation.network, loop=self._loop)
        ended = self._cell_ended
        self._cells = CellPool(self._resources, self._networks, ended, self._loop, self._sandbox_budget.max_cells)
        self._zygotes = ZygotePool(
            self._walls, self._resources, self._loop, lambda zygote, tenant: free_zygote(zygote, tenant, self.refused)
        )
        attached = (self._drivers, self._attachment, ended, self._loop, self._result_bytes)
        self.executors = Executors(self._cells, self._resources, *attached)
        limits, networks, cgroups = self._environment_limits, self._networks, self._resources.cgroups
        installer = Installer(self._data, self.isolation, cgroups, networks, limits, self._progress)
        self._environments = installer.open_environments(environments, self._zygotes.release)
        self._active, self._reply_memory = ActiveSandboxes(self._loop), ReplyMemory(*self._replies, self._loop)
        self._started = True
        parts = (self._environments, self._zygotes, self._cells, self._drivers, self.isolation)
        self._preparation = StartPreparation(*parts, await packages)
        self._preparation.warm_up()  # so that the first cold start does not wait for it
        if any(self._drivers.has_own_memory((device.name,)) for device in self._devices):
            self._watching = self._loop.create_task(watch_devices(self._drivers.faults, self._device_lost))

    def _prepare_machine(self) -> tuple[SandboxResources, Drivers, list[StoredMark]]:
        """Detect the machine's isolation, and remove what an earlier server left behind. Blocks."""
        if self._detect:
            self.isolation = choose((self._isolation_probe or IsolationProbe(self._data)).result())
        drivers = open_drivers(self._data, self._devices, self._driver_options, self.isolation)
        resources = SandboxResources(self._data, self.isolation, self._scratch_bytes, self._max_processes)
        return resources, drivers, load_marks(self._data / DIRECTORY)  # last: no build of an earlier server runs now

    def _walls(self, profile: ZygoteProfile) -> dict[str, Any]:
        return walls(self.isolation, self._data, profile.visible, profile.access, views=profile.views, own_network=True)

    async def stop(self) -> None:
        self._stopping = True
        if not self._started:  # `start` has failed
            self._json_checker.close()
            self._swap_executor.shutdown()
            return
        if self._watching is not None:
            self._watching.cancel()
        for number in list(self._pending):
            self._cancel_start(number)
        for sandbox in list(self._sandboxes.values()):
            self._end(sandbox)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._cells.end_all()
        except TimeoutError:  # a zygote does not fork, or does not let its sandboxes end
            self._zygotes.stop()
            await self._cells.end_all()
        self._json_checker.close()
        await self._preparation.stop()
        await self._environments.stop()
        await self._networks.stop()
        self._zygotes.stop()
        await self._loop.run_in_executor(None, self._swap_executor.shutdown)
        await self._loop.run_in_executor(None, self._resources.close)
        await self._loop.run_in_executor(None, self._drivers.close)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- starts -----------------------------------------------------------------------------------------

    def prepare(self, launch: Launch) -> None:
        self._preparation.prepare(launch)

    def has_environment(self, requirements: tuple[str, ...]) -> bool:
        return self._preparation.has_environment(requirements)

    def build_environment(
        self, requirements: tuple[str, ...], tenant: str, then: Callable[[Outcome | None], None]
    ) -> None:
        self._preparation.build_environment(requirements, tenant, then)

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        self._drivers.place(sandbox, launch.place, launch.tenant)
        self.executors.expect(sandbox, launch)
        environment = self._drivers.environment(sandbox, launch.share, launch.device_bytes)
        if environment:
            launch = replace(launch, env={**launch.env, **environment})
        self._pending[sandbox] = _PendingStart(launch, self._spawn(self._start(sandbox, launch)))

    async def _start(self, number: int, launch: Launch) -> None:
        """Start a sandbox. Whether it has started, failed or found no environment is reported to the listener."""
        memory_bytes = launch.memory_bytes + self._drivers.host_bytes(launch.place, launch.device_bytes)
        try:
            await self._queues.wait(launch.place)
            begun_s = self._loop.time()
            runtime = self._preparation.runtime(launch)
            zygote = await self._preparation.zygote(launch, runtime)
            reserved = self._sandbox_budget.reserve(launch.tenant, self._sandboxes.values(), self.refused)
            cell, data_bytes = self.executors.take(zygote, number, launch, memory_bytes)
        except MissingEnvironmentError:  # it was removed after the call had arrived
            self._start_refused(number)
            return
        except StartError as failure:
            self._start_failed(number, failure)
            return
        except Exception as failure:  # whatever it is, a start that never ends would keep its slot
            if not isinstance(failure, OSError):
                log.exception("a start failed", sandbox=number)
            self._start_failed(number, StartError(Status.INTERNAL_ERROR, f"The sandbox could not be made: {failure}."))
            return
        del self._pending[number]
        cell.reserved = reserved
        has_buffers = runtime.python and (launch.sdk or launch.members)
        buffers = self.buffers.open(launch.tenant, memory_bytes) if has_buffers else None
        handed = HandedRuns() if runtime.python and runs_ahead(launch) else None
        make = GraphSandbox if launch.module else LocalSandbox
        sandbox = make(number, launch, cell, buffers, self, self._loop, self._result_bytes, self._reply_memory, handed)
        self._sandboxes[number] = sandbox
        self._views.open(number, launch, cell.take_views())
        group = self._attachment.before_init(sandbox)
        sandbox.start(runtime.command(memory_bytes), data_bytes, group, waited_s=self._loop.time() - begun_s)
        self._active.add(sandbox)
        await sandbox.start_over
        if not cell.process.pid and time.perf_counter() >= sandbox.deadline_s:
            zygote.kill()  # it answers no longer, and would keep other starts waiting
        # Only now, so that the next fork does not compete with this start.
        self._cells.keep_ready(zygote, MAX_READY_CELLS)

    def _start_failed(self, number: int, failure: StartError) -> None:
        del self._pending[number]
        self._detach(number)
        outcome = Outcome(failure.status, error(str(failure)), 0.0, timed_out=failure.timed_out)
        self._listener.sandbox_lost(number, outcome)

    def _start_refused(self, number: int) -> None:
        del self._pending[number]
        self._detach(number)
        self._listener.sandbox_refused(number)

    def _cancel_start(self, number: int) -> None:
        self._pending.pop(number).task.cancel()
        self._detach(number)

    # --- commands ---------------------------------------------------------------------------------------

    def run(self, sandbox: int, request: RunRequest) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is None:
            return  # its loss is on its way to the listener
        if handle.state != IDLE:
            raise ValueError(f"sandbox {sandbox} is busy; it takes one run at a time")
        if not handle.run(request):
            self._loop.call_soon(handle.run_not_sent)
        self._active.add(handle)

    def run_next(self, sandbox: int, request: RunRequest) -> bool:
        handle = self._sandboxes.get(sandbox)
        return handle is not None and handle.run_next(request)

    def take_back(self, sandbox: int) -> None:
        if (handle := self._sandboxes.get(sandbox)) is not None:
            handle.take_back()

    def output(self, sandbox: int) -> tuple[tuple[str, ...], ...]:
        handle = self._sandboxes.get(sandbox)
        return (handle.logs.lines, *handle.waiting) if handle is not None else ()

    def stop_sandbox(self, sandbox: int) -> None:
        if (handle := self._sandboxes.get(sandbox)) is not None:
            self._end(handle)
        elif sandbox in self._pending:
            self._cancel_start(sandbox)
        else:
            self._detach(sandbox)

    def enforces(self, place: Place) -> bool:
        return self._drivers.enforces(place)

    def set_slice(self, sandbox: int, share: float, ceiling: float) -> None:
        self._drivers.resize(sandbox, share, ceiling)
        self.executors.resize(sandbox, share, ceiling)

    def set_weight(self, tenant: str, weight: float) -> None:
        self._drivers.set_weight(tenant, weight)

    def unload(self, sandbox: int) -> None:
        if (handle := self._sandboxes.get(sandbox)) is not None:
            self._swapper.swap_out(handle)

    def load(self, sandbox: int) -> None:
        if (handle := self._sandboxes.get(sandbox)) is not None:
            self._queues.run(handle.launch.place, lambda: self._swapper.swap_in(handle, self._loaded))

    def move(self, sandbox: int, place: Place, then: Report) -> None:
        if (handle := self._sandboxes.get(sandbox)) is not None:
            self._mover.move(handle, place, then)

    def _loaded(self, sandbox: LocalSandbox) -> None:
        if sandbox.state != GONE:
            self._active.add(sandbox)  # it is frozen again if its run does not come
            self._listener.memory_loaded(sandbox.number)

    def usage(self) -> list[SandboxUsage]:
        return [
            SandboxUsage(sandbox.number, sandbox.cell.process.pid, *used, frozen=sandbox.cell.process.frozen)
            for sandbox in self._sandboxes.values()
            if (used := sandbox.cell.process.usage())
        ]

    def executor_figures(self) -> dict[str, float]:
        return self.executors.figures()

    def build_status(self) -> list[BuildStatus]:
        return self._environments.status(now_s=self._loop.time())

    def pid_of(self, sandbox: int) -> int | None:
        return None if (handle := self._sandboxes.get(sandbox)) is None else handle.cell.process.pid

    def device_usage(self) -> list[DeviceUsage]:
        return self.executors.usage(self._drivers.usage())

    # --- events of sandboxes, cells and devices ---------------------------------------------------------

    def initialised(self, sandbox: LocalSandbox, seconds: float, logs: tuple[str, ...]) -> None:
        self._listener.sandbox_started(sandbox.number, seconds, logs)

    def finished(self, sandbox: LocalSandbox, outcome: Outcome) -> None:
        self._listener.run_finished(sandbox.number, outcome)

    def lost(self, sandbox: LocalSandbox, outcome: Outcome) -> None:
        self._end(sandbox)
        self._listener.sandbox_lost(sandbox.number, outcome)

    def refused(self, sandbox: LocalSandbox) -> None:
        self._end(sandbox)
        self._listener.sandbox_refused(sandbox.number)

    def taken_back(self, sandbox: LocalSandbox, count: int) -> None:
        self._listener.runs_taken_back(sandbox.number, count)

    def _device_lost(self, device: str, why: str) -> None:
        self._devices = tuple(known for known in self._devices if known.name != device)
        text = f"The device {device} was lost: {why}."
        for number, pending in [one for one in self._pending.items() if device in one[1].launch.place]:
            pending.task.cancel()
            self._start_failed(number, StartError(Status.INTERNAL_ERROR, text))
        for sandbox in [each for each in self._sandboxes.values() if device in each.launch.place]:
            sandbox.fail(Status.INTERNAL_ERROR, text)
        self._listener.device_lost(device, why)

    def began_inside(self, sandbox: LocalSandbox, function: str) -> NestedRun | str:
        return self._listener.began_inside(sandbox.number, function)

    def ended_inside(self, sandbox: LocalSandbox, outcome: Outcome) -> NestedRun | None:
        return self._listener.ended_inside(sandbox.number, outcome)

    def check_json(self, sandbox: LocalSandbox, result: memoryview, answer: Callable[[CheckResult], None]) -> None:
        self._json_checker.submit(result, sandbox.launch.tenant, answer)

    def _cell_ended(self, cell: Cell) -> None:
        if isinstance(cell.listener, LocalSandbox | Executor):
            self._detach(cell.listener.number)
            self._queues.end_release(cell.listener.launch.place, cell.listener.number)

    def _detach(self, number: int) -> None:
        self._drivers.detach(number)
        self.executors.forget(number)

    def _end(self, sandbox: LocalSandbox) -> None:
        self._sandboxes.pop(sandbox.number, None)
        self._active.remove(sandbox)
        if not sandbox.cell.has_ended:
            self._queues.begin_release(sandbox.launch.place, sandbox.number)
        if sandbox.channel is not None:
            self.buffers.close(sandbox.channel.buffers)
        sandbox.kill()
        self._views.close(sandbox.number, sandbox.launch)
