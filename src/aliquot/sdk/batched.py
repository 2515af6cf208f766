"""A function that takes the arguments of several calls at once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aliquot.sdk.errors import UsageError
from aliquot.sdk.function import Function
from aliquot.sdk.needs import FunctionNeeds

if TYPE_CHECKING:
    from aliquot.sdk.app import App

A = TypeVar("A")
R = TypeVar("R")


class BatchedFunction(Function[[A], R], Generic[A, R]):  # Python 3.11.2 does not find A by itself
    """The result of `@app.function(batch=32)` over a function from a list of items to a list of their results.

    `f.remote(a)` gives the result of one item. On the platform items of calls that wait run together. `f(a)` runs here
    with that item alone.
    """

    def __init__(self, app: "App", raw: Callable[[list[A]], list[R]], needs: FunctionNeeds) -> None:
        code = raw.__code__
        if code.co_argcount != 1 or code.co_kwonlyargcount:
            raise UsageError(
                f"app {app.name!r}: {raw.__name__} has batch and takes {code.co_argcount + code.co_kwonlyargcount} "
                "arguments; it takes one, the list of items"
            )
        super().__init__(app, cast("Callable[[A], R]", raw), needs)

    def __call__(self, value: A, /) -> R:
        results = cast("Callable[[list[A]], Any]", self.raw)([value])
        if len(results) != 1:
            raise ValueError(f"{self.name} returned {len(results)} results for one item; it takes one for each item")
        (result,) = results
        if isinstance(result, BaseException):
            raise result
        return cast("R", result)
