"""Versions of a function for other kinds of devices."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aliquot.sdk.errors import UsageError
from aliquot.sdk.needs import check_cpu

if TYPE_CHECKING:
    from aliquot.sdk.function import Function

P = ParamSpec("P")
R = TypeVar("R")
_KIND = "cpu"


def add_variant(function: "Function[P, R]", kind: object, raw: Callable[P, R]) -> Callable[P, R]:
    """Declare a version of a function for the processors, which is deployed with it. Return the version unchanged."""
    what = f"app {function.app.name!r}: variant of {function.name}"
    if kind != _KIND:
        raise UsageError(f"{what}: {kind!r} does not fit; it takes 'cpu', and the function itself is for the GPU")
    name, code = getattr(raw, "__name__", ""), getattr(raw, "__code__", None)
    if code is None or getattr(raw, "__qualname__", "") != name or name == "<lambda>":
        raise UsageError(f"{what}: {raw!r} does not fit; it takes a def at the top of the file")
    if name == function.name:
        raise UsageError(f"{what}: it has the same name; give it another one, such as {name}_on_cpu")
    if function.needs.cpu:
        raise UsageError(f"{what}: there is one already, {function.needs.cpu!r}; leave out cpu=True or the other one")
    check_cpu(function.needs.gpu_share, function.needs.group, f"variant of {function.name}")
    own = getattr(function.raw, "__code__", None)
    if own is None or _parameters(own) != _parameters(code):
        raise UsageError(f"{what}: {name} has other parameters; it takes those of {function.name}")
    function.needs = function.needs._replace(cpu=name)
    function.variants[kind] = raw
    function.forget_deployment()
    return raw


def _parameters(code: Any) -> tuple[int, int, int, tuple[str, ...]]:  # noqa: ANN401 - a code object
    count = code.co_argcount + code.co_kwonlyargcount
    return code.co_posonlyargcount, code.co_argcount, code.co_flags & 0x0C, code.co_varnames[:count]
