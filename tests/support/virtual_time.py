"""An event loop with a clock of its own: time passes only when there is nothing else to do, and then at once.

For tests of time limits over connections within this process. They take no time, and no stall of the machine changes
what happens in them. What waits for another thread or process needs the real loop.
"""

import asyncio
import functools
import selectors

_ARRIVAL_S = 0.001  # for what was just sent over loopback


class _SkippingSelector(selectors.DefaultSelector):
    def __init__(self):
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        if timeout is None:
            return super().select(None)
        events = super().select(min(timeout, _ARRIVAL_S)) if timeout > 0 else super().select(0)
        if not events:
            self.now_s += max(timeout, 0)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._clock = _SkippingSelector()
        super().__init__(self._clock)

    def time(self):
        return self._clock.now_s


def in_virtual_time(test):
    """Run a coroutine as a test on a loop with virtual time."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
