"""A device as one executor uses it: a backend and the constants on it for each form of graph.

A form of graph is one line in `RESIDENTS`. What it makes is a `Resident`: a graph that is loaded, run and unloaded.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Protocol

from aliquot.kernels.backends import open_backend
from aliquot.kernels.backends.base import KernelBackend
from aliquot.kernels.executor.residents import DeviceConstants, Fetch, ResidentGraph
from aliquot.kernels.executor.runs import KernelResult, Progress
from aliquot.kernels.graph import Graph, KernelGraph, Scalar


class Resident(Protocol):
    """A graph on a device. One thread loads it, runs its calls one after another, and unloads it."""

    @property
    def signature(self) -> KernelGraph:
        """The inputs, outputs and literals of its calls. A model has no kernels in it. Valid after `load`."""
        ...

    def load(self, fetch: Fetch) -> None:
        """Bring everything that stays on the device between calls. `fetch` returns the bytes of a blob."""
        ...

    def unload(self) -> None: ...

    def run(
        self,
        inputs: Mapping[str, bytes | memoryview],
        literals: Mapping[str, Scalar],
        iterations: int,
        progress: Progress,
    ) -> KernelResult:
        """Run one call. `progress` is told the iteration and the kernel before each launch."""
        ...


class ExecutorDevice:
    """The device of one executor. `running` is held by the one run at a time, `loading` by the one load."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._forms: dict[str, tuple[KernelBackend, DeviceConstants]] = {}
        self.running = Lock()
        self.loading = Lock()

    def make_resident(self, graph: Graph) -> Resident:
        """Compile a graph for the device. Call it with `loading` held."""
        return RESIDENTS[graph.form](graph, self)

    def backend(self, form: str) -> tuple[KernelBackend, DeviceConstants]:
        """Return a backend with a queue of its own, and the constants that all graphs of this form share."""
        if form not in self._forms:
            backend = open_backend(form, self._number)
            self._forms[form] = backend, DeviceConstants(backend)
        backend, constants = self._forms[form]
        return backend.with_own_queue(), constants


def _kernel_graph(graph: Graph, device: ExecutorDevice) -> Resident:
    if not isinstance(graph, KernelGraph):
        raise TypeError(f"a graph of form {graph.form} has no kernels")
    backend, constants = device.backend(graph.form)
    return ResidentGraph(graph, backend, constants)


RESIDENTS: dict[str, Callable[[Graph, ExecutorDevice], Resident]] = {
    "opencl": _kernel_graph,
}
