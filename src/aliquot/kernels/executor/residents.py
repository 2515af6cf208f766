"""Graphs on a device: compiled, their constants loaded, ready to run calls.

Constants belong to the device and not to one graph, so that graphs with equal constants share them.
"""

from collections.abc import Callable, Collection, Mapping
from time import perf_counter, sleep
from types import MappingProxyType

from aliquot.kernels.backends.base import CompiledProgram, DeviceFailed, DeviceMemory, KernelBackend, Region
from aliquot.kernels.check import launch_place
from aliquot.kernels.counters import CompiledKernel
from aliquot.kernels.executor.runs import GraphRun, KernelResult, Progress, RunInput, ignore_progress
from aliquot.kernels.graph import CONST, GraphComplaint, KernelGraph, Scalar
from aliquot.kernels.parameters import check_parameters
from aliquot.kernels.plan import constant_sizes, plan_memory
from aliquot.kernels.reading import GraphRefused

Fetch = Callable[[str], bytes | memoryview]  # returns the bytes of a constant, by digest


class DeviceConstants:
    """The constants on one device, by digest, with the number of graphs that use each."""

    def __init__(self, backend: KernelBackend, bytes_per_s: float = 0) -> None:
        """Load at most so many bytes in a second, if a number is given: a virtual device has no bus of its own."""
        self._backend = backend
        self._bytes_per_s = bytes_per_s
        self._memories: dict[str, DeviceMemory] = {}
        self._users: dict[str, int] = {}

    def __getitem__(self, digest: str) -> DeviceMemory:
        return self._memories[digest]

    def __contains__(self, digest: str) -> bool:
        return digest in self._memories

    def take(self, digest: str, size_bytes: int, fetch: Fetch) -> bool:
        """Load a constant unless it is there. Return whether it had to be loaded."""
        missing = digest not in self._memories
        if missing:
            data = fetch(digest)
            if len(data) != size_bytes:
                raise DeviceFailed(f"constant {digest[:12]} has {len(data)} bytes; the graph says {size_bytes}")
            began = perf_counter()
            memory = self._backend.allocate(size_bytes)
            self._backend.load(Region(memory, 0, size_bytes), data)
            if self._bytes_per_s:
                sleep(max(0.0, size_bytes / self._bytes_per_s - (perf_counter() - began)))
            self._memories[digest] = memory
        self._users[digest] = self._users.get(digest, 0) + 1
        return missing

    def give_back(self, digest: str) -> None:
        """Free a constant when its last graph gives it back."""
        self._users[digest] -= 1
        if not self._users[digest]:
            del self._users[digest]
            self._backend.free(self._memories.pop(digest))


class DeviceArena:
    """The memory of the one run that goes on, as large as the largest graph needs. The graphs of an executor share it.

    It is freed when the last loaded graph is unloaded.
    """

    def __init__(self, backend: KernelBackend) -> None:
        self._backend = backend
        self._memory: DeviceMemory | None = None
        self._users = 0

    def join(self) -> None:
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._free()

    def take(self, size_bytes: int) -> DeviceMemory:
        """Return memory of at least this size."""
        if self._memory is None or self._memory.size_bytes < size_bytes:
            self._free()
            self._memory = self._backend.allocate(size_bytes)
        return self._memory

    def _free(self) -> None:
        if self._memory is not None:
            self._backend.free(self._memory)
            self._memory = None


class ResidentGraph:
    """A graph that is compiled for one device. `load` brings its constants, `unload` drops them."""

    def __init__(
        self,
        graph: KernelGraph,
        backend: KernelBackend,
        constants: DeviceConstants,
        files: Mapping[str, bytes | memoryview] = MappingProxyType({}),
        arena: DeviceArena | None = None,
    ) -> None:
        """Compile the graph. `files` are those that its programs name, by digest. Graphs may share an arena."""
        self.graph = self.signature = graph
        self.plan = plan_memory(graph)
        self.backend = backend
        self._constants = constants
        self._programs: dict[str, CompiledProgram] = {
            name: backend.compile(program, files[program.sha256] if program.sha256 else b"")
            for name, program in graph.programs.items()
        }
        if complaints := self._check_kernels():
            raise GraphRefused(complaints)
        self._launched: set[CompiledKernel] = set()  # PoCL makes machine code at the first launch
        self._held: list[str] = []  # digests of its constants on the device
        self._fresh: set[str] = set()  # of these, the ones that were loaded for its next run
        self._arena = arena or DeviceArena(backend)
        self._is_loaded = False

    def _check_kernels(self) -> list[GraphComplaint]:
        complaints: list[GraphComplaint] = []
        for number, kernel in enumerate(self.graph.kernels):
            program = self._programs[kernel.program]
            if kernel.entry not in program.entries:
                known = ", ".join(program.entries) or "none"
                reason = f"program {kernel.program!r} has no such kernel; it has {known}"
                complaints.append(GraphComplaint(launch_place(number, kernel), reason))
            elif (parameters := program.parameters(kernel.entry)) is not None:
                complaints += check_parameters(self.graph, number, kernel, parameters)
        return complaints

    def load(self, fetch: Fetch) -> None:
        """Bring the constants that are not on the device yet."""
        if not self._is_loaded:
            self._is_loaded = True
            self._arena.join()
        for digest, size_bytes in constant_sizes(self.graph).items():
            if digest not in self._held:
                if self._constants.take(digest, size_bytes, fetch):
                    self._fresh.add(digest)
                self._held.append(digest)

    def unload(self) -> None:
        """Give back the arena, and the constants that no other graph uses."""
        while self._held:
            self._constants.give_back(self._held.pop())
        self._fresh.clear()
        if self._is_loaded:
            self._is_loaded = False
            self._arena.leave()

    def run(
        self,
        inputs: Mapping[str, RunInput],
        literals: Mapping[str, Scalar],
        iterations: int | None = None,
        progress: Progress = ignore_progress,
        kept: Collection[str] = (),
    ) -> KernelResult:
        """Run the list of kernels once for each iteration, and return the outputs. Those `kept` stay on the device."""
        arena = self._arena.take(self.plan.arena_bytes)
        regions = {
            name: Region(arena, offset, self.graph.buffers[name].size_bytes)
            for name, offset in self.plan.offsets.items()
        }
        for name, buffer in self.graph.named(CONST).items():
            regions[name] = Region(self._constants[buffer.sha256], 0, buffer.size_bytes)
        regions |= {name: given for name, given in inputs.items() if isinstance(given, Region)}
        run = GraphRun(self.backend, self.graph, self._programs, regions, self.plan.zeroed, self._fresh, self._launched)
        result = run.perform(
            inputs, literals, self.graph.iterations if iterations is None else iterations, progress, kept
        )
        self._fresh = set()
        return result
