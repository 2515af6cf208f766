"""A device as one executor uses it: a backend and the constants on it for each form of graph."""

from collections.abc import Collection, Mapping
from threading import Lock
from typing import Protocol

from aliquot.kernels.backends import open_backend
from aliquot.kernels.backends.base import KernelBackend
from aliquot.kernels.executor.call_files import ExecutorOutputs
from aliquot.kernels.executor.residents import DeviceConstants, Fetch, ResidentGraph
from aliquot.kernels.executor.runs import KernelResult, Progress, RunInput
from aliquot.kernels.graph import KernelGraph, Scalar


class Resident(Protocol):
    """A graph on a device. One thread loads it, runs its calls one after another, and unloads it."""

    @property
    def signature(self) -> KernelGraph:
        """The inputs, outputs and literals of its calls."""
        ...

    def load(self, fetch: Fetch) -> None:
        """Bring everything that stays on the device between calls. `fetch` returns the bytes of a blob."""
        ...

    def unload(self) -> None: ...

    def run(
        self,
        inputs: Mapping[str, RunInput],
        literals: Mapping[str, Scalar],
        iterations: int,
        progress: Progress,
        kept: Collection[str] = (),
    ) -> KernelResult:
        """Run one call. `progress` is told the iteration and the kernel before each launch.

        Inputs are bytes, or regions of the device. The outputs `kept` are copied to memory of their own there.
        """
        ...

    @property
    def backend(self) -> KernelBackend:
        """The queue that it uses, which frees the outputs that were kept."""
        ...


class ExecutorDevice:
    """The device of one executor. `running` is held by the one run at a time, `loading` by the one load."""

    def __init__(self, number: int = 0, bytes_per_s: float = 0) -> None:
        """Open devices when a form of graph needs them. `bytes_per_s` paces loads, see `DeviceConstants`."""
        self._number = number
        self._bytes_per_s = bytes_per_s
        self._forms: dict[str, tuple[KernelBackend, DeviceConstants]] = {}
        self.outputs = ExecutorOutputs()
        self.running = Lock()
        self.loading = Lock()

    def make_resident(self, graph: KernelGraph, files: Mapping[str, bytes | memoryview]) -> Resident:
        """Compile a graph for the device. `files` are those of its programs. Call it with `loading` held."""
        backend, constants = self.backend(graph.form)
        return ResidentGraph(graph, backend, constants, files)

    def backend(self, form: str) -> tuple[KernelBackend, DeviceConstants]:
        """Return a backend with a queue of its own, and the constants that all graphs of this form share."""
        if form not in self._forms:
            backend = open_backend(form, self._number)
            self._forms[form] = backend, DeviceConstants(backend, self._bytes_per_s)
        backend, constants = self._forms[form]
        return backend.with_own_queue(), constants
