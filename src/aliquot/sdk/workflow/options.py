"""Options of a call: retries and limits of time in a workflow, deadline and cost limit on the platform."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from aliquot.sdk import calls
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import UsageError
from aliquot.sdk.units import read_ms
from aliquot.sdk.wire import Operation
from aliquot.sdk.workflow.exceptions import ALL, is_exception, names_of

if TYPE_CHECKING:
    from aliquot.sdk.client import Client
    from aliquot.sdk.function import Function, Handle

P = ParamSpec("P")
R = TypeVar("R")

_MAX_ATTEMPTS = 1000
ErrorKinds: TypeAlias = (
    "type[BaseException] | str | tuple[type[BaseException] | str, ...] | list[type[BaseException] | str]"
)


def read_seconds(value: object, argument: str) -> int:
    """Parse a time of whole seconds, as the states language has them."""
    time_ms = read_ms(value, argument)
    if time_ms % 1000:
        raise UsageError(f"{argument}: {value!r} is not a time of whole seconds, such as '30s' or '5m'")
    return time_ms // 1000


class Retry:
    """A rule for trying a call again: `attempts` in all, `interval` before the second, then `backoff` times as long.

    `on` has classes of exceptions, or names of errors such as "Function.Lost". Without it all errors are retried.
    """

    def __init__(
        self,
        attempts: int = 3,
        *,
        on: ErrorKinds = (),
        interval: str | float = "1s",
        backoff: float = 2.0,
        max_delay: str | float | None = None,
        jitter: bool = False,
    ) -> None:
        if type(attempts) is not int or not 1 <= attempts <= _MAX_ATTEMPTS:
            raise UsageError(f"attempts: {attempts!r} does not fit; it takes a whole number from 1 to {_MAX_ATTEMPTS}")
        if type(backoff) not in {int, float} or not backoff >= 1:
            raise UsageError(f"backoff: {backoff!r} does not fit; it takes a number from 1 on")
        self.attempts = attempts
        self.kinds = _kinds(on)
        self.interval_s = read_seconds(interval, "interval")
        self.backoff = backoff
        self.max_delay_s = None if max_delay is None else read_seconds(max_delay, "max_delay")
        self.jitter = bool(jitter)

    def rule(self, module: str) -> dict[str, Any]:
        """Return the rule of Retry in a workflow of a module."""
        made: dict[str, Any] = {
            "ErrorEquals": list(self._names(module)),
            "IntervalSeconds": self.interval_s,
            "MaxAttempts": self.attempts - 1,
            "BackoffRate": self.backoff,
        }
        if self.max_delay_s is not None:
            made["MaxDelaySeconds"] = self.max_delay_s
        return {**made, "JitterStrategy": "FULL"} if self.jitter else made

    def _names(self, module: str) -> tuple[str, ...]:
        classes = tuple(kind for kind in self.kinds if not isinstance(kind, str))
        named = tuple(kind for kind in self.kinds if isinstance(kind, str))
        found = names_of(classes, module) if classes else ()
        return (ALL,) if not self.kinds or ALL in (*found, *named) else tuple(dict.fromkeys((*found, *named)))

    def takes(self, error: Exception) -> bool:
        """Return whether an error of a call in this process is retried."""
        return not self.kinds or any(
            kind in {ALL, type(error).__name__} if isinstance(kind, str) else isinstance(error, kind)
            for kind in self.kinds
        )


def _kinds(on: ErrorKinds) -> tuple[type[BaseException] | str, ...]:
    kinds = tuple(on) if isinstance(on, list | tuple) else (on,)
    for kind in kinds:
        if not isinstance(kind, str) and not is_exception(kind):
            raise UsageError(f"on: {kind!r} does not fit; it takes classes of exceptions, or names of errors")
    return kinds


class CallOptions(Generic[P, R]):
    """A function with options, made by `f.options(…)`. A call runs it here, and is a Task in a workflow."""

    def __init__(
        self,
        function: "Function[P, R]",
        retry: Retry | list[Retry] | tuple[Retry, ...] | None,
        timeout: str | float | None,
        limits: Mapping[str, str] | None = None,
    ) -> None:
        self.function = function
        self._limits = limits or {}
        self.retries = () if retry is None else (retry,) if isinstance(retry, Retry) else tuple(retry)
        for one in self.retries:
            if not isinstance(one, Retry):
                raise UsageError(f"retry: {one!r} does not fit; it takes Retry(attempts=3), or a list of such")
        self.timeout_s = None if timeout is None else read_seconds(timeout, "timeout")

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return with_retries(self.retries, lambda: self.function(*args, **kwargs))

    def client(self) -> "Client":
        return self.function.client()

    @dual
    def remote(self, /, *args: P.args, **kwargs: P.kwargs) -> Operation[R]:
        """Run the function on the platform within the limits, and wait for its result."""
        return cast("R", (yield from self.function.on_platform(partial(calls.call, limits=self._limits), args, kwargs)))

    @dual
    def spawn(self, /, *args: P.args, **kwargs: P.kwargs) -> "Operation[Handle[R]]":
        """Start a call on the platform within the limits."""
        started = yield from self.function.on_platform(partial(calls.spawn, limits=self._limits), args, kwargs)
        return self.function.handle(started)

    def fields(self, module: str) -> dict[str, Any]:
        """Return the fields of the Task in a workflow of a module."""
        made: dict[str, Any] = {"Retry": [one.rule(module) for one in self.retries]} if self.retries else {}
        return made if self.timeout_s is None else {**made, "TimeoutSeconds": self.timeout_s}


def with_retries(retries: tuple[Retry, ...], call: Callable[[], R]) -> R:
    """Make a call in this process as a Task makes it: each rule counts its own attempts."""
    from aliquot.sdk.workflow.here import sleep_for

    used: dict[Retry, int] = {}
    while True:
        try:
            return call()
        except Exception as error:
            rule = next((one for one in retries if one.takes(error)), None)
            if rule is None or used.get(rule, 0) >= rule.attempts - 1:
                raise
            delay = rule.interval_s * rule.backoff ** used.get(rule, 0)
            used[rule] = used.get(rule, 0) + 1
            sleep_for(delay if rule.max_delay_s is None else min(delay, rule.max_delay_s))
