"""The machine itself as a node: its devices, and sandboxes forked from zygotes."""

import asyncio
import heapq
import os
import shutil
import signal
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aliquot.core.model import DeviceSpec
from aliquot.live.node.base import Launch, Listener, Node, Outcome, RunRequest, SandboxUsage, Status
from aliquot.live.node.cgroups import Cgroups
from aliquot.live.node.isolation import NO_ISOLATION, Isolation, choose, probe, uid_range, walls
from aliquot.live.node.sandbox import Sandbox, State
from aliquot.live.node.zygotes import BARE_ENVIRONMENT, Profile, Zygote, Zygotes

RESULT_BYTES = 64 * 2**20
SCRATCH_BYTES = 512 * 2**20
PROCESSES = 512  # of one sandbox, threads included
# How often busy sandboxes are looked after: their time limits, and the output of those that take longer than this.
TICK_S = 0.02


class Lane:
    """A device's commands in order: what needs memory waits for what is giving it back."""

    def __init__(self) -> None:
        self._ending: set[int] = set()
        self._waiting: deque[Callable[[], None]] = deque()

    def ending(self, sandbox: int) -> None:
        self._ending.add(sandbox)

    def ended(self, sandbox: int) -> None:
        self._ending.discard(sandbox)
        while self._waiting and not self._ending:
            self._waiting.popleft()()

    def do(self, command: Callable[[], None]) -> None:
        if self._ending:
            self._waiting.append(command)
        else:
            command()


class Slots:
    """Numbers for what only so many can have, the smallest first."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 1

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def give_back(self, slot: int) -> None:
        heapq.heappush(self._free, slot)


class LocalNode(Node):
    def __init__(
        self,
        data: Path,
        devices: Sequence[DeviceSpec],
        *,
        isolation: Isolation | None = None,
        result_bytes: int = RESULT_BYTES,
        scratch_bytes: int = SCRATCH_BYTES,
        processes: int = PROCESSES,
    ) -> None:
        self._data = data.absolute()
        self._scratch_bytes = scratch_bytes
        self._most_processes = processes
        self._slots = Slots()
        self._devices = tuple(devices)
        self.isolation = NO_ISOLATION if isolation is None else isolation
        self._detect = isolation is None
        self._result_bytes = result_bytes
        self._sandboxes: dict[int, Sandbox] = {}
        self._lanes = {device.name: Lane() for device in devices}
        self._busy: dict[Sandbox, None] = {}
        self._ticking = False
        self._ticked_s = 0.0
        self._stopping = False
        self._all_ended: asyncio.Event = asyncio.Event()
        self._processes: set[int] = set()
        self.cgroups: Cgroups | None = None

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return self._devices

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._scratch = self._data / "scratch"
        await self._loop.run_in_executor(None, self._prepare)
        self._zygotes = Zygotes(self._walls, self._loop)
        self._zygotes.get(Profile())  # the first cold start shall not wait for it

    def _prepare(self) -> None:
        """Find out about the machine, and remove what an earlier server left behind."""
        if self._detect:
            self.isolation = choose(probe(self._data))
        if self.isolation.cgroups:
            self.cgroups = Cgroups(f"aliquot-{zlib.crc32(str(self._data).encode()):08x}")
            self.cgroups.sweep()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True, mode=0o711)

    def _walls(self, profile: Profile) -> dict[str, Any]:
        return walls(self.isolation, self._data)

    async def stop(self) -> None:
        self._stopping = True
        for sandbox in list(self._sandboxes.values()):
            self._end(sandbox)
        if self._processes:
            await self._all_ended.wait()
        self._zygotes.stop()
        if self.cgroups is not None:
            await self._loop.run_in_executor(None, self.cgroups.sweep)
            self.cgroups.close()

    # --- commands ---------------------------------------------------------------------------------------

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        handle = Sandbox(sandbox, launch, self, self._loop, self._result_bytes)
        self._sandboxes[sandbox] = handle
        self._lanes[launch.device].do(lambda: self._launch(handle))

    def _launch(self, sandbox: Sandbox) -> None:
        if sandbox.state == State.GONE:
            return
        profile = Profile(imports=sandbox.launch.imports)
        zygote = self._zygotes.get(profile)
        zygote.when_ready(
            lambda zygote: self._fork(zygote, sandbox),
            lambda status, text: self._failed(sandbox, status, text),
        )

    def _failed(self, sandbox: Sandbox, status: Status, text: str) -> None:
        if sandbox.state != State.GONE:
            sandbox.fail(status, text)

    def _fork(self, zygote: Zygote, sandbox: Sandbox) -> None:
        if sandbox.state == State.GONE:
            return
        memory_bytes = sandbox.launch.memory_bytes
        sandbox.slot = self._slots.take()
        try:
            uid, env = self._place(sandbox)
            if self.cgroups is not None and self.cgroups.version:
                sandbox.group = self.cgroups.make(sandbox.number, memory_bytes, self._most_processes)
            fds = sandbox.open() + (sandbox.group.doors() if sandbox.group else ())
        except OSError as error:
            self._slots.give_back(sandbox.slot)
            sandbox.fail(Status.INTERNAL_ERROR, f"The sandbox could not be made: {error}.")
            return
        self._processes.add(sandbox.number)
        self._look_after(sandbox)
        settings = {
            "env": env,
            "uid": uid,
            "memory_bytes": memory_bytes,
            "scratch_bytes": self._scratch_bytes,
            "processes": self._most_processes,
            "limit_data": sandbox.group is None and self.isolation != NO_ISOLATION,
            "exec": None,
        }
        zygote.fork(sandbox, fds, settings)

    def _place(self, sandbox: Sandbox) -> tuple[int | None, dict[str, str]]:
        """Its user, and its environment with its scratch directory."""
        first = uid_range(self._data)[0]
        if self.isolation.mount:
            env = BARE_ENVIRONMENT
        else:
            scratch = self._scratch / str(sandbox.number)
            scratch.mkdir(mode=0o700)
            if self.isolation.own_uid:
                os.chown(scratch, first + sandbox.slot, first + sandbox.slot)
            env = {**BARE_ENVIRONMENT, "HOME": str(scratch), "TMPDIR": str(scratch)}
        if not self.isolation.own_uid:
            return None, env
        return sandbox.slot if self.isolation.user else first + sandbox.slot, env

    def run(self, sandbox: int, request: RunRequest) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is None or handle.state != State.IDLE:
            if handle is not None and handle.state != State.GONE:
                raise ValueError(f"sandbox {sandbox} is busy; it takes one run at a time")
            return  # its loss is on its way to the listener
        if not handle.run(request):
            self._loop.call_soon(handle.not_begun)
        self._look_after(handle)

    def stop_sandbox(self, sandbox: int) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is not None:
            self._end(handle)

    def unload(self, sandbox: int) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is not None:
            handle.send_all(signal.SIGSTOP)

    def load(self, sandbox: int) -> None:
        handle = self._sandboxes.get(sandbox)
        if handle is not None:
            self._lanes[handle.launch.device].do(lambda: self._load(handle))

    def _load(self, sandbox: Sandbox) -> None:
        sandbox.send_all(signal.SIGCONT)
        self._loop.call_soon(self._loaded, sandbox)

    def _loaded(self, sandbox: Sandbox) -> None:
        if sandbox.state != State.GONE:
            self._listener.memory_loaded(sandbox.number)

    def usage(self) -> list[SandboxUsage]:
        page = os.sysconf("SC_PAGE_SIZE")
        hertz = os.sysconf("SC_CLK_TCK")
        found = []
        for number, sandbox in self._sandboxes.items():
            try:
                fields = Path(f"/proc/{sandbox.pid}/stat").read_text().rpartition(")")[2].split()
                # What it has added to its zygote's memory, children and scratch files included, where that is counted.
                used = sandbox.group.used_bytes() if sandbox.group else int(fields[21]) * page
            except OSError:
                continue  # not forked yet, or ended just now
            cpu_s = (int(fields[11]) + int(fields[12])) / hertz
            found.append(SandboxUsage(number, sandbox.pid, used, cpu_s))
        return found

    # --- what sandboxes tell ----------------------------------------------------------------------------

    def initialised(self, sandbox: Sandbox, seconds: float, logs: tuple[str, ...]) -> None:
        self._busy.pop(sandbox, None)
        self._listener.sandbox_started(sandbox.number, seconds, logs)

    def finished(self, sandbox: Sandbox, outcome: Outcome) -> None:
        self._busy.pop(sandbox, None)
        self._listener.run_finished(sandbox.number, outcome)

    def lost(self, sandbox: Sandbox, outcome: Outcome) -> None:
        self._end(sandbox)
        self._listener.sandbox_lost(sandbox.number, outcome)

    def refused(self, sandbox: Sandbox) -> None:
        self._end(sandbox)
        self._listener.sandbox_refused(sandbox.number)

    def ended(self, sandbox: Sandbox) -> None:
        number = sandbox.number
        self._processes.discard(number)
        self._lanes[sandbox.launch.device].ended(number)
        self._slots.give_back(sandbox.slot)
        self._loop.run_in_executor(None, self._clean_up, sandbox)
        if self._stopping and not self._processes:
            self._all_ended.set()

    def _clean_up(self, sandbox: Sandbox) -> None:
        if sandbox.group is not None:
            sandbox.group.remove()
        if not self.isolation.mount:
            shutil.rmtree(self._scratch / str(sandbox.number), ignore_errors=True)

    def _end(self, sandbox: Sandbox) -> None:
        self._sandboxes.pop(sandbox.number, None)
        self._busy.pop(sandbox, None)
        if sandbox.number in self._processes:
            self._lanes[sandbox.launch.device].ending(sandbox.number)
        sandbox.kill()

    # --- time -------------------------------------------------------------------------------------------

    def _look_after(self, sandbox: Sandbox) -> None:
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
