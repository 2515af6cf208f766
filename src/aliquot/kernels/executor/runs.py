"""One run of a graph on a device: it launches the kernels and counts what they needed."""

from collections.abc import Callable, Collection, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple

from aliquot.kernels.backends.base import (
    CompiledProgram,
    DeviceMemory,
    KernelArgument,
    KernelBackend,
    LocalBytes,
    Region,
)
from aliquot.kernels.counters import CompiledKernel, KernelCounters
from aliquot.kernels.graph import (
    CONST,
    INPUT,
    OUTPUT,
    Argument,
    BufferArgument,
    KernelGraph,
    KernelLaunch,
    LiteralArgument,
    LocalArgument,
    Scalar,
)
from aliquot.kernels.tensors import from_bytes, pack_scalar

RunInput = bytes | memoryview | Region  # a region is on the device already
Progress = Callable[[int, int], None]  # the iteration and the kernel that is launched next


def ignore_progress(_iteration: int, _kernel: int) -> None:
    """Take note of nothing."""


class KernelResult(NamedTuple):
    """The outputs of a run, its counters, the seconds that it took, and copies of outputs that stay on the device."""

    outputs: dict[str, bytes]
    counters: KernelCounters
    run_s: float
    kept: Mapping[str, DeviceMemory] = MappingProxyType({})


class GraphRun:
    """A run. `fresh` are the constants that were loaded for it, `launched` the kernels that have run on the device."""

    def __init__(
        self,
        backend: KernelBackend,
        graph: KernelGraph,
        programs: Mapping[str, CompiledProgram],
        regions: Mapping[str, Region],
        zeroed: Mapping[int, tuple[str, ...]],
        fresh: set[str],
        launched: set[CompiledKernel],
    ) -> None:
        self._backend = backend
        self._graph = graph
        self._programs = programs
        self._regions = regions
        self._zeroed = zeroed
        self._fresh = fresh
        self._launched = launched
        self._seen: set[str] = set()
        self._hits = self._misses = self._kernel_hits = self._kernel_misses = 0
        self._bytes_in = self._bytes_zeroed = 0

    def perform(
        self,
        inputs: Mapping[str, RunInput],
        literals: Mapping[str, Scalar],
        limit: int,
        progress: Progress,
        kept: Collection[str] = (),
    ) -> KernelResult:
        """Load the inputs, launch the kernels up to `limit` times, and read the outputs, but not those `kept`."""
        began = perf_counter()
        for name in self._graph.named(INPUT):
            given = inputs[name]
            if isinstance(given, Region):
                self._seen.add(name)
            else:
                self._backend.load(self._regions[name], given)
                self._bytes_in += self._regions[name].size_bytes
        iterations = self._iterate(literals, limit, progress)
        copies = {name: self._keep(self._regions[name]) for name in kept}
        names = [name for name in self._graph.named(OUTPUT) if name not in copies]
        outputs = {name: self._backend.read(self._regions[name]) for name in names}
        counters = KernelCounters(
            self._hits,
            self._misses,
            self._kernel_hits,
            self._kernel_misses,
            self._bytes_in,
            sum(map(len, outputs.values())),
            self._bytes_zeroed,
            iterations,
        )
        return KernelResult(outputs, counters, perf_counter() - began, copies)

    def _keep(self, region: Region) -> DeviceMemory:
        memory = self._backend.allocate(region.size_bytes)
        self._backend.copy(region, Region(memory, 0, region.size_bytes))
        self._backend.finish()
        return memory

    def _iterate(self, literals: Mapping[str, Scalar], limit: int, progress: Progress) -> int:
        bound = [[self._bind(argument, literals) for argument in kernel.arguments] for kernel in self._graph.kernels]
        for iteration in range(limit):
            for number, (kernel, arguments) in enumerate(zip(self._graph.kernels, bound, strict=True)):
                if iteration == 0:
                    self._zero(number)
                progress(iteration, number)
                program = self._programs[kernel.program]
                self._backend.launch(program, kernel.entry, kernel.grid, kernel.block, arguments)
                if progress is not ignore_progress:  # the kernel that is told is the one that runs
                    self._backend.finish()
                self._count(kernel)
            if self._is_done(iteration + 1):
                return iteration + 1
        self._backend.finish()
        return limit

    def _zero(self, number: int) -> None:
        for name in self._zeroed.get(number, ()):
            self._backend.zero(self._regions[name])
            self._bytes_zeroed += self._regions[name].size_bytes

    def _is_done(self, iterations: int) -> bool:
        rule = self._graph.until
        if rule is None or iterations % rule.every:
            return False
        value = from_bytes(self._graph.buffers[rule.buffer].dtype, (), self._backend.read(self._regions[rule.buffer]))
        return isinstance(value, float) and value < rule.below

    def _bind(self, argument: Argument, literals: Mapping[str, Scalar]) -> KernelArgument:
        if isinstance(argument, BufferArgument):
            return self._regions[argument.name]
        if isinstance(argument, LocalArgument):
            return LocalBytes(argument.size_bytes)
        if isinstance(argument, LiteralArgument):
            return pack_scalar(self._graph.literals[argument.name].dtype, literals[argument.name])
        return pack_scalar(argument.dtype, argument.value)

    def _count(self, kernel: KernelLaunch) -> None:
        code = (kernel.program, kernel.entry)
        self._kernel_misses += code not in self._launched
        self._kernel_hits += code in self._launched
        self._launched.add(code)
        for argument in kernel.buffers:
            missed = self._is_first_use(argument.name)
            self._misses += missed
            self._hits += not missed

    def _is_first_use(self, name: str) -> bool:
        buffer = self._graph.buffers[name]
        identity = buffer.sha256 if buffer.kind == CONST else name
        if identity in self._seen:
            return False
        self._seen.add(identity)
        if buffer.kind != CONST:
            return True
        if identity in self._fresh:
            self._bytes_in += buffer.size_bytes
        return identity in self._fresh
