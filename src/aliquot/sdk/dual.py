"""Two ways to call one operation: `f.remote(x)` blocks, `await f.remote.aio(x)` runs on the event loop."""

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from aliquot.sdk.client import Client
from aliquot.sdk.tracebacks import without_own_frames
from aliquot.sdk.wire import Operation

P = ParamSpec("P")
R = TypeVar("R")


class HasClient(Protocol):
    """An object whose operations run on a client."""

    def client(self) -> Client: ...


S = TypeVar("S", bound=HasClient)


class Dual(Generic[P, R]):
    """A bound operation. Call it to wait for the result, or await its `.aio` on an event loop."""

    __slots__ = ("_client", "_operation")

    def __init__(self, operation: Callable[P, Operation[R]], client: Callable[[], Client]) -> None:
        self._operation = operation
        self._client = client

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._client().run(self._operation(*args, **kwargs))
        except Exception as error:
            without_own_frames(error)
            raise

    async def aio(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await self._client().run_async(self._operation(*args, **kwargs))
        except Exception as error:
            without_own_frames(error)
            raise


class dual(Generic[S, P, R]):  # noqa: N801 - used as a decorator
    """A decorator that turns a method that is an operation into a `Dual`."""

    def __init__(self, method: Callable[Concatenate[S, P], Operation[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__wrapped__: Any = method  # for help() and for tools that read the signature

    @overload
    def __get__(self, instance: None, owner: type[S]) -> "dual[S, P, R]": ...
    @overload
    def __get__(self, instance: S, owner: type[S]) -> Dual[P, R]: ...
    def __get__(self, instance: S | None, owner: type[S]) -> "dual[S, P, R] | Dual[P, R]":
        if instance is None:
            return self
        return Dual(self._method.__get__(instance, owner), instance.client)
