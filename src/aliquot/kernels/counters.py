"""Count what a run of a graph must cause: hits and misses of buffers and of compiled kernels, and bytes moved.

An access is one buffer argument of one launched kernel. It misses if the buffer had to be loaded or zeroed for it.
"""

from collections.abc import Collection

from msgspec import Struct

from aliquot.kernels.graph import CONST, INPUT, OUTPUT, KernelGraph

CompiledKernel = tuple[str, str]  # program and entry


class KernelCounters(Struct, frozen=True, rename="camel"):
    """The counters of one run, as they stand in its record."""

    hits: int = 0
    misses: int = 0
    kernel_hits: int = 0
    kernel_misses: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_zeroed: int = 0
    iterations: int = 0


class RecordedCounters(KernelCounters, frozen=True, rename="camel"):
    """The counters of a run with the load before it: milliseconds, and those of them beside another graph's run."""

    load_time: float = 0.0
    hidden_time: float = 0.0


def count_run(
    graph: KernelGraph,
    *,
    constants: Collection[str] = (),
    inputs: Collection[str] = (),
    kept_outputs: Collection[str] = (),
    compiled: Collection[CompiledKernel] = (),
    iterations: int | None = None,
) -> KernelCounters:
    """Return the counters of a run.

    `constants` are the digests on the device before it, `inputs` the inputs that are there already, `compiled` the
    kernels that need no compiling. `kept_outputs` are left on the device. `iterations` are those really done.
    """
    rounds = graph.iterations if iterations is None else iterations
    there, ready = set(constants) | set(inputs), set(compiled)
    misses = kernel_misses = bytes_in = bytes_zeroed = 0
    for kernel in graph.kernels:
        if (kernel.program, kernel.entry) not in ready:
            ready.add((kernel.program, kernel.entry))
            kernel_misses += 1
        for argument in kernel.buffers:
            buffer = graph.buffers[argument.name]
            identity = buffer.sha256 if buffer.kind == CONST else argument.name
            if identity in there:
                continue
            there.add(identity)
            misses += 1
            bytes_in += buffer.size_bytes if buffer.kind in (CONST, INPUT) else 0
            bytes_zeroed += buffer.size_bytes if buffer.is_zeroed else 0
    accesses = rounds * sum(len(kernel.buffers) for kernel in graph.kernels)
    launches = rounds * len(graph.kernels)
    bytes_out = sum(buffer.size_bytes for name, buffer in graph.named(OUTPUT).items() if name not in kept_outputs)
    return KernelCounters(
        accesses - misses, misses, launches - kernel_misses, kernel_misses, bytes_in, bytes_out, bytes_zeroed, rounds
    )
