"""Hand short calls ahead: give them to a busy sandbox of their flow instead of waking another process.

Waking a process costs more than a short run. A sandbox that is busy with a short run therefore gets the flow's next
calls before it has replied, and runs them one after another. They hold slots and are charged like any call in flight.
A call is handed ahead only if its expected wait behind the others is shorter than a wake-up.

A run may turn out long. The shell then takes back the calls behind it that have not begun, on its own or because the
core commands `TakeBack`, and reports `RunsTakenBack`. They return to their queue, and go to a sandbox that is idle.
"""

from aliquot.core.lifecycle import BUSY
from aliquot.core.records import Invocation, Sandbox

MAX_AHEAD = 16  # calls that wait in one sandbox
MAX_RUN_S = 0.0001  # a longer run is worth another process
MAX_WAIT_S = 0.0005  # expected wait in a sandbox
MAX_PAUSE_RUNS = 4096  # after calls were taken back again and again
MIN_PAUSE_RUNS = 64
EWMA_KEEP, EWMA_NEW = 0.9, 0.1  # weights of the estimate and of a new value


class AheadState:
    """The decision whether calls of one flow are handed ahead, and to which sandbox."""

    __slots__ = ("_pause", "_pause_runs", "_room", "_run_s", "sandbox")

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None  # the one that was given a call last
        self._run_s: float | None = None  # estimate of the time that a run takes inside its sandbox
        self._room = 0  # calls that may wait in one sandbox now
        self._pause = 0  # number of runs before calls are handed ahead again
        self._pause_runs = MIN_PAUSE_RUNS

    def record_run(self, inside_s: float) -> None:
        """Update the estimate with a run that took so long inside its sandbox. 0 means that this is not known."""
        if self._pause:
            self._pause -= 1
        if inside_s:
            known = self._run_s
            self._run_s = inside_s if known is None else EWMA_KEEP * known + EWMA_NEW * inside_s
        run_s = self._run_s
        short = run_s is not None and run_s <= MAX_RUN_S and not self._pause
        self._room = min(MAX_AHEAD, int(MAX_WAIT_S / run_s)) if short and run_s else 0

    def taken_back(self) -> None:
        """Pause, because calls were taken back. The pause doubles each time."""
        self._room = 0
        self._pause = self._pause_runs
        self._pause_runs = min(MAX_PAUSE_RUNS, 2 * self._pause_runs)

    def place_for(self, invocation: Invocation) -> Sandbox | None:
        """Return the busy sandbox to which the call is handed ahead, or None."""
        sandbox = self.sandbox
        if sandbox is None or sandbox.state is not BUSY or len(sandbox.ahead) >= self._room:
            return None
        if sandbox.invocation is None or sandbox.invocation.own_sandbox:
            return None
        if sandbox.retired is not None or not sandbox.device.slots:
            return None  # it is to stop, or its node gets no work
        if sandbox.move is not None:
            return None  # one slot is kept for it on the other device
        if sandbox.device.plan is not None or sandbox.device.spec.remote:
            return None  # promised calls need its slot, or its node cannot say at once whether it takes the call
        return None if invocation.session is not None or invocation.own_sandbox else sandbox
