"""A device as one executor uses it: a backend and the constants on it for each form of graph."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from time import perf_counter
from typing import NamedTuple, Protocol

from aliquot.kernels.backends import open_backend
from aliquot.kernels.backends.base import KernelBackend
from aliquot.kernels.executor.call_files import ExecutorOutputs
from aliquot.kernels.executor.residents import DeviceArena, DeviceConstants, Fetch, ResidentGraph
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


class BusyClock:
    """Adds up the time in which a graph runs. Used as a context around each run, one at a time."""

    def __init__(self) -> None:
        self._total_s = 0.0
        self._began_s: float | None = None

    def __enter__(self) -> None:
        self._began_s = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._total_s, self._began_s = self.seconds(), None

    def seconds(self) -> float:
        """Return the time so far, with that of a run that is going on."""
        began_s = self._began_s
        return self._total_s + (perf_counter() - began_s if began_s is not None else 0.0)


class LoadTime(NamedTuple):
    """The milliseconds of a load, and those of them in which another graph ran."""

    load_ms: float
    hidden_ms: float


class ExecutorDevice:
    """The device of one executor. `running` is held by the one run at a time, `loading` by the one load."""

    def __init__(self, number: int = 0, bytes_per_s: float = 0) -> None:
        """Open devices when a form of graph needs them. `bytes_per_s` paces loads, see `DeviceConstants`."""
        self._number = number
        self._bytes_per_s = bytes_per_s
        self._forms: dict[str, tuple[KernelBackend, DeviceConstants, DeviceArena]] = {}
        self.outputs = ExecutorOutputs()
        self.running = Lock()
        self.loading = Lock()
        self.busy = BusyClock()

    @contextmanager
    def timed_load(self, note: Callable[[LoadTime], None]) -> Iterator[None]:
        """Hold `loading`, and report the time that passes from then on."""
        with self.loading:
            began_s, busy_s = perf_counter(), self.busy.seconds()
            yield
            took_s = perf_counter() - began_s
            hidden_s = min(took_s, self.busy.seconds() - busy_s)
            note(LoadTime(round(1000 * took_s, 3), round(1000 * hidden_s, 3)))

    def make_resident(self, graph: KernelGraph, files: Mapping[str, bytes | memoryview]) -> Resident:
        """Compile a graph for the device. `files` are those of its programs. Call it with `loading` held."""
        backend, constants, arena = self._form(graph.form)
        return ResidentGraph(graph, backend, constants, files, arena)

    def _form(self, form: str) -> tuple[KernelBackend, DeviceConstants, DeviceArena]:
        """Return a backend with a queue of its own, and the memory that all graphs of this form share."""
        if form not in self._forms:
            backend = open_backend(form, self._number)
            self._forms[form] = backend, DeviceConstants(backend, self._bytes_per_s), DeviceArena(backend)
        backend, constants, arena = self._forms[form]
        return backend.with_own_queue(), constants, arena
