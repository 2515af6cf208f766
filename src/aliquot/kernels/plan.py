"""Plan the device memory of a graph: the place of every buffer, before anything runs.

Constants stay on the device between calls. Inputs, outputs and temporaries share one arena, which a call holds only
while it runs: two buffers may have the same place if they are never needed at the same time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aliquot.kernels.graph import CONST, INPUT, OUTPUT, KernelGraph
from aliquot.runtime.units import MIB

MODEL_BYTES = 16 * MIB  # of a model's session, besides its weights, which are there twice: as read, and prepacked
ALIGNMENT_BYTES = 256  # OpenCL's and CUDA's devices take sub-buffers at multiples of it


class Lifetime(NamedTuple):
    """The first and the last kernel for which the content of a buffer matters."""

    first: int
    last: int

    def meets(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


class MemoryPlan(NamedTuple):
    """The memory of one graph. `memory_bytes` stays between calls, `run_bytes` is held by each call while it runs."""

    memory_bytes: int
    run_bytes: int  # the arena, and the memory that models need for values of their own
    arena_bytes: int
    offsets: dict[str, int]  # of inputs, outputs and temporaries within the arena
    zeroed: dict[int, tuple[str, ...]]  # buffers to zero right before a kernel of the first iteration


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_memory(graph: KernelGraph) -> MemoryPlan:
    """Place the buffers of a checked graph."""
    lifetimes = buffer_lifetimes(graph)
    sizes = {name: aligned(graph.buffers[name].size_bytes) for name in lifetimes}
    offsets = pack_by_lifetimes(sizes, lifetimes)
    zeroed: defaultdict[int, list[str]] = defaultdict(list)
    for name, lifetime in lifetimes.items():
        if graph.buffers[name].is_zeroed:
            zeroed[lifetime.first].append(name)
    arena_bytes = max((offsets[name] + sizes[name] for name in offsets), default=0)
    models = [program.model for program in graph.programs.values() if program.model is not None]
    return MemoryPlan(
        sum(aligned(size_bytes) for size_bytes in constant_sizes(graph).values())
        + sum(aligned(2 * model.weight_bytes) + MODEL_BYTES for model in models),
        arena_bytes + sum(aligned(model.work_bytes) for model in models),
        arena_bytes,
        offsets,
        {number: tuple(names) for number, names in sorted(zeroed.items())},
    )


def pack_by_lifetimes(sizes: Mapping[str, int], lifetimes: Mapping[str, Lifetime]) -> dict[str, int]:
    """Return the offset of each array: the largest first, at the lowest place that is free while it is needed."""
    offsets: dict[str, int] = {}
    for name in sorted(lifetimes, key=lambda name: (-sizes[name], lifetimes[name].first, name)):
        taken = [(offsets[other], sizes[other]) for other in offsets if lifetimes[other].meets(lifetimes[name])]
        offsets[name] = _lowest_gap(sizes[name], taken)
    return offsets


def program_files(graph: KernelGraph) -> dict[str, int]:
    """Return the sizes of the files of programs by digest. A size that is not known is 0."""
    return {program.sha256: program.size_bytes for program in graph.programs.values() if program.sha256}


def constant_sizes(graph: KernelGraph) -> dict[str, int]:
    """Return the sizes of the constants by digest. Equal constants are one buffer."""
    return {buffer.sha256: buffer.size_bytes for buffer in graph.named(CONST).values()}


def buffer_lifetimes(graph: KernelGraph) -> dict[str, Lifetime]:
    """Return the lifetimes of all buffers that are not constant.

    An input is there from the start, an output until the end. A graph that repeats itself needs each buffer throughout.
    """
    end = len(graph.kernels) - 1
    uses: defaultdict[str, list[int]] = defaultdict(list)
    for number, kernel in enumerate(graph.kernels):
        for argument in kernel.buffers:
            uses[argument.name].append(number)
    lifetimes = {}
    for name, buffer in graph.buffers.items():
        if buffer.kind == CONST:
            continue
        first = 0 if buffer.kind == INPUT or graph.iterations > 1 else uses[name][0]
        last = end if buffer.kind == OUTPUT or graph.iterations > 1 else uses[name][-1]
        lifetimes[name] = Lifetime(first, last)
    return lifetimes


def _lowest_gap(size: int, taken: Iterable[tuple[int, int]]) -> int:
    """Return the lowest offset at which so many bytes are free."""
    offset = 0
    for start, length in sorted(taken):
        if offset + size <= start:
            break
        offset = max(offset, start + length)
    return offset
