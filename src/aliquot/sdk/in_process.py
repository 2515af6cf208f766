"""Calls from function to function of one group, inside their sandbox: the other gets the very same objects."""

from collections.abc import Callable
from typing import Any

from aliquot.sdk.errors import FunctionError, RemoteError, UsageError
from aliquot.sdk.inside import host
from aliquot.sdk.portable import dumped, load
from aliquot.sdk.session import in_session

_OWN = frozenset(["__aliquot_main__", "__main__"])  # what an app's module is called here
_LOOKED_AT = 1000  # values, in search of what the app's module defines


def runs_here(action: str) -> bool:
    """Whether the function would run in this very process, were it called now."""
    group = host.group
    return group is not None and group.has(action) and not _in_event_loop() and not in_session()


def call(app: str, action: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - its result
    """Run it, if `runs_here`; what it raises is raised here."""
    assert host.group is not None  # noqa: S101 - it was asked
    return host.group.call(action, carried((args, kwargs), app), Passage(app, action))


class Passage:
    def __init__(self, app: str, action: str) -> None:
        self._app, self._action = app, action

    def back(self, value: Any) -> Callable[[], Any]:  # noqa: ANN401 - what a function returned or raised
        try:
            return carried(value, self._app)
        except UsageError as error:
            why = f"{self._action}: what it gives cannot be handed over: {error.__cause__}; it takes what pickle takes"
            raise UsageError(why) from error.__cause__

    def noted(self, error: Any, activation_id: str) -> Exception:  # noqa: ANN401 - likewise
        if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
            return RemoteError(f"{self._action}: it raised {error!r}", activation_id=activation_id)
        error.add_note(f"raised by {self._action} in its group, activation {activation_id}")
        return error

    def failure(self, text: str, activation_id: str) -> Exception:
        told = f"{self._action}: {text}; its logs: aliquot logs {activation_id}"
        return FunctionError(told, activation_id=activation_id)


def carried(value: Any, app: str) -> Callable[[], Any]:  # noqa: ANN401 - between functions
    """The value itself; but what the app's own module defines is another there, and is made anew from a pickle."""
    if not _holds_own(value):
        return lambda: value
    pickled = dumped(value, app)
    return lambda: load(pickled, app)


def _holds_own(value: Any) -> bool:  # noqa: ANN401 - whatever is handed over
    """Whether it is made of the app's own classes, itself or what its lists, tuples and dictionaries hold."""
    ahead, left = [value], _LOOKED_AT
    while ahead and left:
        left -= 1
        one = ahead.pop()
        kind = type(one)
        if kind.__module__ in _OWN or (isinstance(one, type) and one.__module__ in _OWN):
            return True
        if kind in {list, tuple, set, frozenset}:
            ahead += list(one)[:left]
        elif kind is dict:
            ahead += [*list(one)[:left], *list(one.values())[:left]]
    return False


def _in_event_loop() -> bool:
    import asyncio

    return asyncio._get_running_loop() is not None  # noqa: SLF001 - the public one raises where there is none
