"""Chains of functions: `a | b` calls `b` with the result of `a`, on the platform in one request.

A chain is a workflow whose source is written here, so it runs, is shown and is deployed like any other.
"""

import inspect
import keyword
import linecache
from typing import TYPE_CHECKING, Any

from aliquot.sdk.classes import ClassMethod
from aliquot.sdk.errors import UsageError
from aliquot.sdk.function import Function
from aliquot.sdk.workflow.decorator import Workflow

if TYPE_CHECKING:
    from aliquot.sdk.app import App

MIN_CHAIN_LENGTH, MAX_CHAIN_LENGTH = 2, 50
_MAX_NAME_LENGTH = 100


class Chain(Workflow[..., Any]):
    """Functions of an app that run one on the result of another. `c(x)` runs here, `c.remote(x)` on the platform."""

    def __init__(self, app: "App", name: str, functions: tuple[Function[..., Any], ...], *, durable: bool) -> None:
        self.functions = functions
        super().__init__(app, _write(name, functions), None, durable=durable, group=None, limits={})

    def __or__(self, other: object) -> "Chain":
        return join(self, other)


def chain(*functions: Function[..., Any], name: str | None = None, durable: bool = False) -> Chain:
    """Return a chain of functions of one app. Each gets the result of the one before as its only argument.

    name: the chain is deployed as `APP.NAME`. Without it, the name is made of the functions' names.
    durable: whether each step is on disk before the next one, so that a crash of the platform loses nothing.
    """
    if not MIN_CHAIN_LENGTH <= len(functions) <= MAX_CHAIN_LENGTH:
        raise UsageError(f"chain: it takes {MIN_CHAIN_LENGTH} to {MAX_CHAIN_LENGTH} functions, not {len(functions)}")
    for function in functions:
        if type(function) not in {Function, ClassMethod}:
            reason = "it takes those with @app.function, and methods of @app.cls such as Model().predict"
            raise UsageError(f"chain: {function!r} is not a function of an app; {reason}")
    app = functions[0].app
    for function in functions:
        if function.app is not app:
            raise UsageError(f"chain: {function.action} and {functions[0].action} are of different apps")
    made = name or "_then_".join(function.name for function in functions)
    if not made.isidentifier() or keyword.iskeyword(made) or len(made) > _MAX_NAME_LENGTH:
        raise UsageError(f"chain: {made!r} is not a name; give one such as name='prepare'")
    known = app.workflows.get(made)
    if isinstance(known, Chain) and (known.functions, known.durable) == (functions, durable):
        return known
    if made in app.functions or (known is not None and not isinstance(known, Chain)):
        raise UsageError(f"chain: app {app.name!r} has a function {made!r} already; give another name")
    new = app.workflows[made] = Chain(app, made, functions, durable=durable)
    return new


def join(first: "Function[..., Any] | Chain", second: object) -> Chain:
    """Return the chain of `first | second`, where both may be chains."""
    parts = [one.functions if isinstance(one, Chain) else (one,) for one in (first, second)]
    return chain(*parts[0], *parts[1])  # which checks them


def _write(name: str, functions: tuple[Function[..., Any], ...]) -> Any:  # noqa: ANN401 - a function
    """Return the function of a chain, whose source is kept where `inspect` and tracebacks find it."""
    parameters = inspect.signature(functions[0].raw).parameters.values()
    for one in parameters:
        if one.kind not in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}:
            raise UsageError(f"chain: {functions[0].action} takes {one}; the first function names its parameters")
    module = {f"step_{number}": function for number, function in enumerate(functions)}
    defaults = {f"default_{one.name}": one.default for one in parameters if one.default is not one.empty}
    signature = ", ".join(
        one.name if one.default is one.empty else f"{one.name}=default_{one.name}" for one in parameters
    )
    given = ", ".join(f"{one.name}={one.name}" for one in parameters)
    lines = [f"def {name}({signature}):", f"    value = step_0({given})"]
    lines += [f"    value = step_{number}(value)" for number in range(1, len(functions))]
    text = "\n".join([*lines, "    return value", ""])
    file = f"<chain {' | '.join(function.name for function in functions)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    made: dict[str, Any] = {"__name__": functions[0].raw.__module__, **module, **defaults}
    exec(compile(text, file, "exec"), made)  # noqa: S102 - the lines above, of names that Python has accepted
    return made[name]
