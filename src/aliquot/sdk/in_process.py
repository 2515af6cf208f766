"""Calls between functions of one group, inside their sandbox: the called function gets the same objects."""

from collections.abc import Callable
from typing import Any

from aliquot.sdk.errors import FunctionError, RemoteError, UsageError
from aliquot.sdk.portable import dump_whole, load
from aliquot.sdk.sandbox import sandbox
from aliquot.sdk.session import in_session

_OWN = frozenset(["__aliquot_main__", "__main__"])  # the names of an app's module in the sandbox
_MAX_VALUES = 1000  # that are searched for objects of the app's own classes


def runs_here(action: str) -> bool:
    """Return whether a call of the function now would run in this process."""
    group = sandbox.group
    return group is not None and group.can_call(action) and not _in_event_loop() and not in_session()


def call(app: str, action: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - its result
    """Call the function, if `runs_here`. What it raises is raised here."""
    assert sandbox.group is not None  # noqa: S101 - `runs_here` was true
    return sandbox.group.call(action, convert_value((args, kwargs), app), GroupResultConverter(app, action))


class GroupResultConverter:
    """Converts results and exceptions between functions of a group, as `runtime.group.ResultConverter` describes."""

    def __init__(self, app: str, action: str) -> None:
        self._app, self._action = app, action

    def convert(self, value: Any) -> Callable[[], Any]:  # noqa: ANN401 - what a function returned or raised
        try:
            return convert_value(value, self._app)
        except UsageError as error:
            why = f"{self._action}: its result cannot be handed over: {error.__cause__}; it takes what pickle takes"
            raise UsageError(why) from error.__cause__

    def add_note(self, error: Any, activation_id: str) -> Exception:  # noqa: ANN401 - likewise
        if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
            return RemoteError(f"{self._action}: it raised {error!r}", activation_id=activation_id)
        error.add_note(f"raised by {self._action} in its group, activation {activation_id}")
        return error

    def load_failure(self, text: str, activation_id: str) -> Exception:
        message = f"{self._action}: {text}; its logs: aliquot logs {activation_id}"
        return FunctionError(message, activation_id=activation_id)


def convert_value(value: Any, app: str) -> Callable[[], Any]:  # noqa: ANN401 - between functions
    """Return a function that gives the value in the other function's state.

    It is the value itself, unless it has objects of the app's own classes. The other function has its own version of
    these classes, so such a value is pickled and loaded there.
    """
    if not _has_own_classes(value):
        return lambda: value
    pickled = dump_whole(value, app)
    return lambda: load(pickled, app)


def _has_own_classes(value: Any) -> bool:  # noqa: ANN401 - any value
    """Return whether a value, or an element of its collections, is an object of the app's own classes."""
    ahead, left = [value], _MAX_VALUES
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

    return asyncio._get_running_loop() is not None  # noqa: SLF001 - the public one raises if there is none
