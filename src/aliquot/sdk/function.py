"""A function of an app, which can run in this process and on the platform."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from functools import update_wrapper
from threading import Lock
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from aliquot.sdk import calls, in_process
from aliquot.sdk.client import Client
from aliquot.sdk.deployment import Deployment, deploy
from aliquot.sdk.dual import Dual, dual
from aliquot.sdk.errors import NotFoundError
from aliquot.sdk.events import events_request, read_events
from aliquot.sdk.needs import FunctionNeeds
from aliquot.sdk.portable import locate
from aliquot.sdk.session import current
from aliquot.sdk.tracebacks import without_own_frames
from aliquot.sdk.variants import add_variant
from aliquot.sdk.wire import Operation, pause

if TYPE_CHECKING:
    from aliquot.sdk.app import App
    from aliquot.sdk.chains import Chain
    from aliquot.sdk.streaming import StreamedCall
    from aliquot.sdk.workflow.options import CallOptions, Retry

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A_contra = TypeVar("A_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

_GENERATOR = 0x20  # the flag of inspect, which is slow to import
_CONCURRENCY = 16  # default for the calls of one map that run at once


class TakesOneArgument(Protocol[A_contra, T_co]):
    """A function that can be called with one argument, as `map` does."""

    def __call__(self, value: A_contra, /) -> T_co: ...


class Handle(Generic[R]):
    """A spawned call. Any process can find it again by its id: `f.handle(id)`."""

    def __init__(self, function: "Function[..., R]", activation_id: str) -> None:
        self.id = activation_id
        self._function = function

    def __repr__(self) -> str:
        return f"<{self._function.action} {self.id}>"

    def client(self) -> Client:
        return self._function.client()

    @dual
    def get(self, timeout: float | None = None) -> Operation[R]:
        """Return its result, or raise what it raised.

        Raises `TimeoutError` after `timeout` seconds. The call itself continues.
        """
        function = self._function
        return cast("R", (yield from calls.wait(function.app.name, function.action, self.id, timeout)))

    def follow(self) -> Iterator[str]:
        """Yield each line that it prints, from the first one, until the call ends. This blocks."""
        what = f"{self._function.action}: activation {self.id}"
        lines = 0
        for event, data in read_events(self.client().lines(events_request(self.id), what), what):
            if event == "log":
                lines += 1
                yield data
            elif event == "result":  # a call that had already ended has no log events
                yield from data["logs"][lines:]

    @dual
    def cancel(self) -> Operation[None]:
        """End the call, whether it waits or runs. A call that has ended stays as it is."""
        yield from calls.cancel(self._function.action, self.id)


class Function(Generic[P, R]):
    """The result of `@app.function`. `f(x)` runs here, `f.remote(x)` runs on the platform."""

    def __init__(self, app: "App", raw: Callable[P, R], needs: FunctionNeeds) -> None:
        update_wrapper(self, raw)
        self.app = app
        self.raw = raw  # what the sandbox calls: the undecorated function
        self.wrapped: Callable[..., Any] = raw  # what was decorated
        self.needs = needs
        self.variants: dict[str, Callable[P, R]] = {}  # by kind of device
        self.name = raw.__name__
        self.action = f"{app.name}.{raw.__name__}"
        self._lock = Lock()
        self._deployed: Literal["no", "soon", "yes"] = "no"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: Any = self.raw(*args, **kwargs)
        if type(result) is GeneratorType:
            from aliquot.sdk.workflow.here import runs_here

            if runs_here.get():  # in a workflow that runs as plain Python
                result = list(result)  # as in the graph
        return cast("R", result)

    def __repr__(self) -> str:
        return f"<function {self.action} of Aliquot>"

    def __or__(self, other: object) -> "Chain":
        """Return the chain that calls another function with the result of this one."""
        from aliquot.sdk.chains import join

        return join(self, other)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return locate, (self.app.name, self.name)

    def client(self) -> Client:
        return self.app.client()

    def variant(self, kind: Literal["cpu"], /) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Make another function the version of this one for a kind of device: `@f.variant("cpu")`.

        It has the same parameters and a name of its own. Calls of `f` on the platform run either, wherever the platform
        places them. Here `f(x)` runs `f` itself.
        """
        return lambda raw: add_variant(self, kind, raw)

    @property
    def remote(self) -> "RemoteCall[P, R]":
        """Run the function on the platform and wait for its result: `f.remote(x)`. What it raises is raised here.

        A call from a function of the same group runs in the same process, with the same objects.
        """
        return RemoteCall(self)

    @property
    def is_generator(self) -> bool:
        """Return whether the function yields its results one by one."""
        return bool(getattr(getattr(self.wrapped, "__code__", None), "co_flags", 0) & _GENERATOR)

    @property
    def remote_gen(self) -> "StreamedCall[P, Any]":
        """Run a function that yields, and iterate over what it yields as it comes: `for part in f.remote_gen(x)`."""
        from aliquot.sdk.streaming import StreamedCall

        return StreamedCall(self)

    @dual
    def spawn(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[Handle[R]]:
        """Start a call on the platform. On return the call is on disk there, so a crash does not lose it."""
        return self.handle((yield from self.on_platform(calls.spawn, args, kwargs)))

    @property
    def map(self: "TakesOneArgument[A, T]") -> "MappedCalls[A, T]":
        """Call the function once for each input, several at once: `f.map(inputs)`. Results keep that order."""
        return MappedCalls(cast("Function[..., T]", self), spread=False)

    @property
    def starmap(self) -> "MappedCalls[Iterable[Any], R]":
        """Call the function as `map` does, with a tuple of arguments for each input."""
        return MappedCalls(self, spread=True)

    def options(
        self,
        *,
        retry: "Retry | list[Retry] | tuple[Retry, ...] | None" = None,
        timeout: str | float | None = None,
        deadline: str | float | None = None,
        cost: float | str | None = None,
        late: Literal["run", "drop"] | None = None,
        prefer: Literal["cost", "latency", "balanced"] | None = None,
    ) -> "CallOptions[P, R]":
        """Return the function with options for its calls.

        In a workflow, as in `f.options(retry=Retry(3))(x)`:
        retry: how often, and after which errors, the call is tried again.
        timeout: a call that takes longer fails with States.Timeout, which `except TimeoutError` takes.

        On the platform, as in `f.options(deadline="80ms", cost=60).remote(x)`, which raises `Refused` at once if a
        limit cannot be met. "none" lifts the limit that the function declares.
        deadline: the time in which the call must have ended.
        cost: the most that it may cost.
        late: "run" lets a call go on whose promise is broken, "drop" ends it with a `PlatformError`.
        prefer: the place among those that meet the limits: the cheapest ("cost", if it is left out), the one with the
            earliest end ("latency"), or the smallest product of both ("balanced").
        """
        from aliquot.sdk.workflow.options import CallOptions

        return CallOptions(self, retry, timeout, calls.limit_headers(deadline, cost, late, prefer))

    def handle(self, activation_id: str) -> Handle[R]:
        """Return the handle of a call that was spawned earlier, perhaps by another process."""
        return Handle(self, activation_id)

    @dual
    def deploy(self) -> Operation[Deployment]:
        """Deploy only this function. `app.deploy()` deploys all of them."""
        return (yield from self.update())

    def update(self) -> Operation[Deployment]:
        """Return the operation that deploys the function, for callers that have a driver."""
        result = yield from self._deploy()
        self._deployed = "yes"
        return result

    def _deploy(self) -> Operation[Deployment]:
        return deploy(
            self.app.name, self.action, self.name, self.app.code(self.wrapped, *self.variants.values()), self.needs
        )

    def forget_deployment(self) -> None:
        """Deploy the function again before its next call."""
        self._deployed = "no"

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the positional arguments as they are sent."""
        return args

    def on_platform(
        self, operation: Callable[..., Operation[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Operation[Any]:
        """Return an operation on this function that deploys it first. It belongs to the current session."""
        what = (self.app.name, self.action, self.arguments(args), kwargs, current(self.client()))
        return self._on_platform(operation, what)

    def _on_platform(self, operation: Callable[..., Operation[Any]], what: tuple[Any, ...]) -> Operation[Any]:
        yield from self.deploy_once()
        try:
            return (yield from operation(*what))
        except NotFoundError:
            if not self.app.autodeploy:
                raise
        self.forget_deployment()  # it was deleted; the call did not start, so it can be repeated
        yield from self.deploy_once()
        return (yield from operation(*what))

    def deploy_once(self) -> Operation[None]:
        """Deploy the function once in the life of a process. Concurrent calls wait until that is done."""
        while self.app.autodeploy and self._deployed != "yes":
            with self._lock:
                mine = self._deployed == "no"
                if mine:
                    self._deployed = "soon"
            if not mine:
                yield from pause(0.002)
                continue
            try:
                yield from self._deploy()
            except BaseException:
                self._deployed = "no"
                raise
            self._deployed = "yes"


class RemoteCall(Dual[P, R]):
    """A call of a function: in this process if the caller is of the same group, otherwise over HTTP."""

    def __init__(self, function: Function[P, R]) -> None:
        super().__init__(self._over_http, function.client)
        self._function = function

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self._function
        if in_process.runs_here(function.action):
            return cast("R", in_process.call(function.app.name, function.action, function.arguments(args), kwargs))
        try:
            return function.client().run(self._over_http(*args, **kwargs))
        except Exception as error:
            without_own_frames(error)
            raise

    def _over_http(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        return cast("R", (yield from self._function.on_platform(calls.call, args, kwargs)))


class MappedCalls(Generic[A, R]):
    """Many calls of one function. Call it with inputs and iterate over the results, or `async for` over `.aio(…)`.

    The calls begin with the iteration. An error is raised in its place and ends the map. With
    `return_exceptions=True` it is yielded instead.
    """

    def __init__(self, function: Function[..., R], *, spread: bool) -> None:
        self._function = function
        self._spread = spread

    def _start(self, item: Any) -> Operation[Any]:  # noqa: ANN401 - one input
        return self._function.on_platform(calls.call, tuple(item) if self._spread else (item,), {})

    @overload
    def __call__(
        self, inputs: Iterable[A], *, concurrency: int = ..., return_exceptions: Literal[False] = ...
    ) -> Iterator[R]: ...
    @overload
    def __call__(
        self, inputs: Iterable[A], *, concurrency: int = ..., return_exceptions: bool
    ) -> Iterator[R | Exception]: ...
    def __call__(
        self, inputs: Iterable[A], *, concurrency: int = _CONCURRENCY, return_exceptions: bool = False
    ) -> Iterator[Any]:
        from aliquot.sdk import mapping
        from aliquot.sdk.workflow.here import runs_here

        mapping.check_concurrency(concurrency)
        if runs_here.get():  # in a workflow that runs as plain Python
            made = [self._function(*(cast("Any", item) if self._spread else (item,))) for item in inputs]
            return cast("Iterator[Any]", made)  # a list, as in the graph
        steps = mapping.steps(self._start, concurrency, return_exceptions=return_exceptions)
        return mapping.drive(self._function.client(), steps, inputs, concurrency)

    @overload
    def aio(
        self,
        inputs: Iterable[A] | AsyncIterable[A],
        *,
        concurrency: int = ...,
        return_exceptions: Literal[False] = ...,
    ) -> AsyncIterator[R]: ...
    @overload
    def aio(
        self, inputs: Iterable[A] | AsyncIterable[A], *, concurrency: int = ..., return_exceptions: bool
    ) -> AsyncIterator[R | Exception]: ...
    def aio(
        self,
        inputs: Iterable[A] | AsyncIterable[A],
        *,
        concurrency: int = _CONCURRENCY,
        return_exceptions: bool = False,
    ) -> AsyncIterator[Any]:
        from aliquot.sdk import mapping

        mapping.check_concurrency(concurrency)
        steps = mapping.steps(self._start, concurrency, return_exceptions=return_exceptions)
        return mapping.drive_async(self._function.client(), steps, inputs, concurrency)
