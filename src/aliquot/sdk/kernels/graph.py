"""A kernel graph of an app: `g(x=a)` runs it in this process, `g.remote(x=a)` on the platform."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, cast

from aliquot.sdk.dual import dual
from aliquot.sdk.errors import NotFoundError, UsageError
from aliquot.sdk.kernels import operations
from aliquot.sdk.kernels.builder import GraphBuilder
from aliquot.sdk.kernels.onnx_files import OnnxFile
from aliquot.sdk.kernels.operations import Outputs
from aliquot.sdk.wire import pause

if TYPE_CHECKING:
    from aliquot.kernels.graph import KernelGraph
    from aliquot.sdk.app import App
    from aliquot.sdk.client import Client
    from aliquot.sdk.deployment import Deployment
    from aliquot.sdk.kernels.local import LocalGraph
    from aliquot.sdk.wire import Operation

_CONCURRENCY = 16  # calls of one map that run at once


class GraphHandle:
    """A spawned call of a kernel graph."""

    def __init__(self, graph: AppKernelGraph, activation_id: str) -> None:
        self.id = activation_id
        self._graph = graph

    def __repr__(self) -> str:
        return f"<{self._graph.action} {self.id}>"

    def client(self) -> Client:
        return self._graph.client()

    @dual
    def get(self, timeout: float | None = None) -> Operation[Outputs]:
        """Return its outputs, or raise why there are none. Raises `TimeoutError` after `timeout` seconds."""
        graph = self._graph
        return (yield from operations.wait(graph.action, graph.checked(), self.id, timeout))


class AppKernelGraph(GraphBuilder):
    """The result of `app.kernel_graph`. It is built by its methods, and complete with its first call or deployment."""

    def __init__(self, app: App, name: str, model: OnnxFile | None, iterations: int, share: float | None) -> None:
        super().__init__(name, iterations)
        self._closed = "" if model is None else "it is a model, which has its own"
        self.app = app
        self.action = f"{app.name}.{name}"
        self.share = share
        self._model = model
        self._checked: KernelGraph | None = None
        self._local: LocalGraph | None = None
        self._deployed: Literal["no", "soon", "yes"] = "no"
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<kernel graph {self.action} of Aliquot>"

    def __call__(self, /, *, iterations: int | None = None, **given: Any) -> Outputs:  # noqa: ANN401 - arrays and scalars
        """Run the graph in this process and return its outputs by name. Arrays and literals are given by name."""
        from aliquot.sdk.kernels import arrays

        graph = self.checked()
        inputs, literals = arrays.bind(graph, given)
        result = self.local().run(inputs, literals, iterations)
        return arrays.to_arrays(graph, result.outputs)

    def client(self) -> Client:
        return self.app.client()

    def local(self) -> LocalGraph:
        """Return the graph on the device of this process. It is compiled once."""
        from aliquot.sdk.kernels.local import LocalGraph

        graph = self.checked()
        with self._lock:
            if self._local is None:
                self._local = LocalGraph(graph, self._blobs)
            return self._local

    def document(self) -> dict[str, Any]:
        """Return the graph as the JSON that `aliquot kernel check` reads."""
        from aliquot.kernels.digest import describe

        return describe(self.checked())

    def checked(self) -> KernelGraph:
        """Return the graph. Raises a `UsageError` with every mistake and its place."""
        from aliquot.kernels.reading import GraphRefused

        if self._checked is None:
            try:
                self._checked = self._read()
            except GraphRefused as refused:
                lines = map(str, refused.complaints)
                raise UsageError(f"kernel graph {self.name}:\n" + "\n".join(lines)) from refused
            self._closed = "it has been used"
        return self._checked

    def _read(self) -> KernelGraph:
        from aliquot.kernels.check import check_graph
        from aliquot.kernels.reading import GraphRefused, read_graph

        if self._model is not None:
            return self._read_model(self._model)
        import json

        graph = cast(
            "KernelGraph", read_graph(json.dumps(self._document))
        )  # the builder makes no short form of a model
        if complaints := check_graph(graph):
            raise GraphRefused(complaints)
        return graph

    def _read_model(self, model: OnnxFile) -> KernelGraph:
        from hashlib import sha256

        from aliquot.kernels.graph import ModelGraph
        from aliquot.kernels.models import model_kernels

        content = model.content()
        digest = sha256(content).hexdigest()
        self._blobs[digest] = content
        return model_kernels(ModelGraph(digest, {name: tuple(one) for name, one in model.shapes.items()}), content)

    @dual
    def remote(
        self,
        /,
        *,
        iterations: int | None = None,
        outputs: Mapping[str, Any] | None = None,
        **given: Any,  # noqa: ANN401
    ) -> Operation[Outputs]:
        """Run the graph on the platform and return its outputs by name: `g.remote(x=a, alpha=2)["y"]`.

        An input may be a stored object, `{"key": "inputs/x"}`. `outputs={"y": "results/y"}` makes an object of an
        output, which is then returned as `{"key": "results/y"}`; `{"key": "results/y", "stay": True}` also leaves it on
        the device for the next call that names it.
        """
        return (yield from self._start(given, iterations, outputs))

    @dual
    def spawn(self, /, *, iterations: int | None = None, **given: Any) -> Operation[GraphHandle]:  # noqa: ANN401
        """Start a call on the platform. On return it is on disk there. Its outputs are kept for a day."""
        from aliquot.sdk.kernels import arrays

        body = arrays.call_file(self.checked(), given, iterations)
        found = yield from self._on_platform(lambda: operations.spawn(self.action, body))
        return self.handle(found)

    def handle(self, activation_id: str) -> GraphHandle:
        """Return the handle of a call that was spawned earlier, perhaps by another process."""
        return GraphHandle(self, activation_id)

    def map(
        self, inputs: Iterable[Mapping[str, Any]], *, concurrency: int = _CONCURRENCY, return_exceptions: bool = False
    ) -> Iterator[Any]:
        """Call the graph once for each of the arguments, several at once: `g.map([{"x": a}, {"x": b}])`.

        Outputs keep that order. An error is raised in its place, or yielded with `return_exceptions=True`.
        """
        from aliquot.sdk import mapping

        mapping.check_concurrency(concurrency)
        steps = mapping.steps(self._start, concurrency, return_exceptions=return_exceptions)
        return mapping.drive(self.client(), steps, inputs, concurrency)

    @dual
    def deploy(self) -> Operation[Deployment]:
        """Deploy only this graph. `app.deploy()` deploys all of the app."""
        return (yield from self.update())

    def update(self) -> Operation[Deployment]:
        """Return the operation that stores the constants and deploys the graph, for callers that have a driver."""
        self.checked()
        result = yield from operations.deploy(self.app.name, self.action, self.document(), self._blobs, self.share)
        self._deployed = "yes"
        return result

    def _start(
        self, given: Mapping[str, Any], iterations: int | None = None, outputs: Mapping[str, Any] | None = None
    ) -> Operation[Outputs]:
        from aliquot.sdk.kernels import arrays

        graph = self.checked()
        body = arrays.call_file(graph, given, iterations, outputs)
        found: Outputs = yield from self._on_platform(lambda: operations.call(self.action, graph, body))
        return found

    def _on_platform(self, operation: Callable[[], Operation[Any]]) -> Operation[Any]:
        yield from self._deploy_once()
        try:
            return (yield from operation())
        except NotFoundError:
            if not self.app.autodeploy:
                raise
        self._deployed = "no"  # it was deleted; nothing was started, so it can be repeated
        yield from self._deploy_once()
        return (yield from operation())

    def _deploy_once(self) -> Operation[None]:
        """Deploy the graph once in the life of a process. Concurrent calls wait until that is done."""
        while self.app.autodeploy and self._deployed != "yes":
            with self._lock:
                mine = self._deployed == "no"
                if mine:
                    self._deployed = "soon"
            if not mine:
                yield from pause(0.002)
                continue
            try:
                yield from self.update()
            except BaseException:
                self._deployed = "no"
                raise
