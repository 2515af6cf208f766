"""Wait for a condition with a time limit. The error names the awaited thing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

TIMEOUT_S = 120.0  # a wait fails because something hangs, never because the machine is busy
PAUSE_S = 0.01  # between two reads

T = TypeVar("T")


def wait_until(
    read: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    what: str,
    timeout_s: float = TIMEOUT_S,
    pause_s: float = PAUSE_S,
) -> T:
    """Call `read` until `accept` is true of its value, and return that value.

    Raises `TimeoutError` with `what` and the last value read.
    """
    deadline_s = time.monotonic() + timeout_s
    while not accept(value := read()):
        if time.monotonic() > deadline_s:
            raise _timeout_error(what, timeout_s, value)
        time.sleep(pause_s)
    return value


async def wait_until_async(
    read: Callable[[], Awaitable[T]],
    accept: Callable[[T], object] = bool,
    *,
    what: str,
    timeout_s: float = TIMEOUT_S,
    pause_s: float = PAUSE_S,
) -> T:
    """Await `read` until `accept` is true of its value, and return that value: `wait_until` for coroutines."""
    deadline_s = time.monotonic() + timeout_s
    while not accept(value := await read()):
        if time.monotonic() > deadline_s:
            raise _timeout_error(what, timeout_s, value)
        await asyncio.sleep(pause_s)
    return value


async def wait_on_loop(
    read: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    what: str,
    timeout_s: float = TIMEOUT_S,
    pause_s: float = 0.001,
) -> T:
    """Call `read` between turns of the event loop until `accept` is true of its value, and return that value."""

    async def read_async() -> T:
        return read()

    return await wait_until_async(read_async, accept, what=what, timeout_s=timeout_s, pause_s=pause_s)


def _timeout_error(what: str, timeout_s: float, value: object) -> TimeoutError:
    return TimeoutError(f"waited {timeout_s:g} s for {what}; last seen: {value!r:.2000}")
