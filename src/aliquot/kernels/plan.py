"""Plan the device memory of a graph: the place of every buffer, before anything runs.

Constants stay on the device between calls. Inputs, outputs and temporaries share one arena, which a call holds only
while it runs: two buffers may have the same place if they are never needed at the same time.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from aliquot.kernels.graph import CONST, INPUT, OUTPUT, KernelGraph

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
    run_bytes: int
    offsets: dict[str, int]  # of inputs, outputs and temporaries within the arena
    zeroed: dict[int, tuple[str, ...]]  # buffers to zero right before a kernel of the first iteration


def aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_memory(graph: KernelGraph) -> MemoryPlan:
    """Place the buffers of a checked graph."""
    lifetimes = buffer_lifetimes(graph)
    sizes = {name: aligned(graph.buffers[name].size_bytes) for name in lifetimes}
    offsets: dict[str, int] = {}
    for name in sorted(lifetimes, key=lambda name: (-sizes[name], lifetimes[name].first, name)):
        taken = [(offsets[other], sizes[other]) for other in offsets if lifetimes[other].meets(lifetimes[name])]
        offsets[name] = _lowest_gap(sizes[name], taken)
    zeroed: defaultdict[int, list[str]] = defaultdict(list)
    for name, lifetime in lifetimes.items():
        if graph.buffers[name].is_zeroed:
            zeroed[lifetime.first].append(name)
    return MemoryPlan(
        sum(aligned(size_bytes) for size_bytes in constant_sizes(graph).values()),
        max((offsets[name] + sizes[name] for name in offsets), default=0),
        offsets,
        {number: tuple(names) for number, names in sorted(zeroed.items())},
    )


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
