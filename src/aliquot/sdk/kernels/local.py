"""Run kernel graphs in this process, on its first device, without a platform."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from aliquot.kernels.graph import KernelGraph, Scalar
from aliquot.sdk.errors import UsageError

if TYPE_CHECKING:
    from aliquot.kernels.executor.device import ExecutorDevice
    from aliquot.kernels.executor.runs import KernelResult


@cache
def local_device() -> "ExecutorDevice":
    """Return the device that all graphs of this process share."""
    from aliquot.kernels.executor.device import ExecutorDevice

    return ExecutorDevice()


class LocalGraph:
    """A graph that is compiled and has its constants on the device of this process."""

    def __init__(self, graph: KernelGraph, blobs: Mapping[str, bytes]) -> None:
        """Compile the graph and load it. `blobs` are its constants and files of programs by digest."""
        from aliquot.kernels.backends import BackendMissing
        from aliquot.kernels.backends.base import BuildFailed, KernelError
        from aliquot.kernels.reading import GraphRefused

        self._graph = graph
        device = local_device()
        try:
            with device.loading:
                self._resident = device.make_resident(graph, blobs)
                self._resident.load(blobs.__getitem__)
        except BuildFailed as error:
            raise UsageError(f"a program does not compile:\n{error.log}") from error
        except (KernelError, GraphRefused, BackendMissing) as error:
            raise UsageError(str(error)) from error

    def run(
        self, inputs: Mapping[str, bytes], literals: Mapping[str, Scalar], iterations: int | None = None
    ) -> "KernelResult":
        """Run the graph once. Runs of this process follow one another."""
        from aliquot.kernels.executor.runs import ignore_progress

        limit = self._graph.iterations
        if iterations is not None and not 1 <= iterations <= limit:
            raise UsageError(f"iterations is {iterations}; the graph takes 1 to {limit}")
        with local_device().running:
            return self._resident.run(inputs, literals, iterations or limit, ignore_progress)
