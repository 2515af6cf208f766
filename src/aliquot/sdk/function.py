"""A function that runs here when it is called, and on the platform when one says so."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from functools import update_wrapper
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from aliquot.sdk import calls, in_process
from aliquot.sdk.client import Client
from aliquot.sdk.deploying import Deployment, deploy
from aliquot.sdk.dual import Dual, dual
from aliquot.sdk.errors import NotFoundError
from aliquot.sdk.events import joining, read_events
from aliquot.sdk.needs import Needs
from aliquot.sdk.portable import locate
from aliquot.sdk.session import current
from aliquot.sdk.wire import Operation, pause

if TYPE_CHECKING:
    from aliquot.sdk.app import App

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A_contra = TypeVar("A_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

_CONCURRENCY = 16  # calls of one map at once, unless said otherwise


class Takes(Protocol[A_contra, T_co]):
    """A function that can be called with one argument, whatever else it may take: what `map` needs of one."""

    def __call__(self, value: A_contra, /) -> T_co: ...


class Handle(Generic[R]):
    """A call that was spawned. Its id is all that is needed to find it again, from any process: `f.handle(id)`."""

    def __init__(self, function: "Function[..., R]", activation_id: str) -> None:
        self.id = activation_id
        self._function = function

    def __repr__(self) -> str:
        return f"<{self._function.action} {self.id}>"

    def client(self) -> Client:
        return self._function.client()

    @dual
    def get(self, timeout: float | None = None) -> Operation[R]:
        """Its result, or what it raised; `TimeoutError` after that many seconds, while the call goes on."""
        function = self._function
        return cast("R", (yield from calls.wait(function.app.name, function.action, self.id, timeout)))

    def follow(self) -> Iterator[str]:
        """Each line that it prints, as it is printed, from the first on; it ends when the call does. Blocking."""
        what = f"{self._function.action}: activation {self.id}"
        lines = 0
        for event, data in read_events(self.client().lines(joining(self.id), what), what):
            if event == "log":
                lines += 1
                yield data
            elif event == "result":  # of one that had ended before there is nothing else
                yield from data["logs"][lines:]

    @dual
    def cancel(self) -> Operation[None]:
        """End it, running or not; one that has ended stays as it is."""
        yield from calls.cancel(self._function.action, self.id)


class Function(Generic[P, R]):
    """What `@app.function` makes. `f(x)` runs here, `f.remote(x)` on the platform."""

    def __init__(self, app: "App", raw: Callable[P, R], needs: Needs) -> None:
        update_wrapper(self, raw)
        self.app = app
        self.raw = raw  # what the sandbox calls
        self.needs = needs
        self.name = raw.__name__
        self.action = f"{app.name}.{raw.__name__}"
        self._lock = Lock()
        self._deployed: Literal["no", "soon", "yes"] = "no"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.raw(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.action} of Aliquot>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return locate, (self.app.name, self.name)

    def client(self) -> Client:
        return self.app.client()

    @property
    def remote(self) -> "Remote[P, R]":
        """`f.remote(x)`: run it on the platform and wait for its result; what it raises is raised here.

        From a function of its own group it runs in that very process: it gets the very same objects.
        """
        return Remote(self)

    @dual
    def spawn(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[Handle[R]]:
        """Have it run on the platform. On return the call is on disk there: a crash does not lose it."""
        return self.handle((yield from self.on_platform(calls.spawn, args, kwargs)))

    @property
    def map(self: "Takes[A, T]") -> "Many[A, T]":
        """`f.map(inputs)`: one call for each, several at once, results in the order of the inputs."""
        return Many(cast("Function[..., T]", self), spread=False)

    @property
    def starmap(self) -> "Many[Iterable[Any], R]":
        """`f.starmap(inputs)`: as `map`, each input a tuple of arguments."""
        return Many(self, spread=True)

    def handle(self, activation_id: str) -> Handle[R]:
        """Of a call that was spawned earlier, perhaps by another process."""
        return Handle(self, activation_id)

    @dual
    def deploy(self) -> Operation[Deployment]:
        """Bring this function alone up to date on the platform; `app.deploy()` does all of them."""
        return (yield from self.update())

    def update(self) -> Operation[Deployment]:
        """The operation itself, for who has a driver."""
        result = yield from self._deploy()
        self._deployed = "yes"
        return result

    def _deploy(self) -> Operation[Deployment]:
        return deploy(self.app.name, self.action, self.name, self.app.code(), self.needs)

    def on_platform(
        self, operation: Callable[..., Operation[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Operation[Any]:
        """The operation on this function, deployed; it belongs to the session that is current now."""
        return self._on_platform(operation, (self.app.name, self.action, args, kwargs, current(self.client())))

    def _on_platform(self, operation: Callable[..., Operation[Any]], what: tuple[Any, ...]) -> Operation[Any]:
        yield from self.ready()
        try:
            return (yield from operation(*what))
        except NotFoundError:
            if not self.app.autodeploy:
                raise
        self._deployed = "no"  # somebody deleted it; the call was not begun, so it may be made again
        yield from self.ready()
        return (yield from operation(*what))

    def ready(self) -> Operation[None]:
        """Deployed, once in the life of a process. Calls that come meanwhile wait for the one that does it."""
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


class Remote(Dual[P, R]):
    def __init__(self, function: Function[P, R]) -> None:
        super().__init__(self._over_http, function.client)
        self._function = function

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self._function
        if in_process.runs_here(function.action):
            return cast("R", in_process.call(function.app.name, function.action, args, kwargs))
        return super().__call__(*args, **kwargs)

    def _over_http(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        return cast("R", (yield from self._function.on_platform(calls.call, args, kwargs)))


class Many(Generic[A, R]):
    """Call it with inputs and iterate over the results, or over `.aio(…)` with `async for`: calls begin then.

    An error is raised in its place and ends the map; with `return_exceptions=True` it is yielded instead.
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

        mapping.check_concurrency(concurrency)
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
