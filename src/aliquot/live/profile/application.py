"""The sums of one application in the current second, and the sandboxes from which they come."""

from collections.abc import Callable
from typing import Protocol

from aliquot.core.lifecycle import BUSY, STARTING
from aliquot.core.records import Sandbox
from aliquot.live.profile.process_counters import ProcessCounters, StateCounters, TransferCounters
from aliquot.live.profile.records import SECOND_S, ProfileRow, gram

COLD_S = 1.0  # after a cold start, in which a sandbox is not typical
NO_TRANSFERS, NO_STATE = TransferCounters(0, 0, 0), StateCounters(0, 0.0, 0)
CALL, START = "call", "start"


class DeviceReading(Protocol):
    """The compute that a sandbox has used of an accelerator so far, and the memory that it holds there."""

    @property
    def compute_s(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...


class ApplicationSums:
    """The work of one function since the last row."""

    __slots__ = (
        "at_once", "calls", "cold", "compute_s", "faults", "grams", "last", "memory_bytes", "memory_limit",
        "read_bytes", "request", "share", "starts", "system_calls", "written_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.last = ""  # operation
        self.request, self.memory_limit = 0.0, 0
        self._clear()

    def _clear(self) -> None:
        self.calls = self.at_once = self.starts = self.memory_bytes = 0
        self.read_bytes = self.written_bytes = self.system_calls = self.faults = 0
        self.compute_s = self.share = 0.0
        self.cold = False
        self.grams: dict[int, int] = {}

    def note(self, operation: str) -> None:
        """Count an operation, and the pair of it and the operation before."""
        for bucket in (gram(operation), gram(self.last, operation)):
            self.grams[bucket] = self.grams.get(bucket, 0) + 1
        self.last = operation

    def row(self, key: tuple[str, str], t_s: int) -> ProfileRow:
        """Return the sums as a row, and begin anew."""
        made = ProfileRow(
            *key, t_s, SECOND_S, self.calls, self.at_once, self.starts, round(self.compute_s, 6), round(self.share, 4),
            self.request, self.memory_bytes, self.memory_limit, self.read_bytes, self.written_bytes, self.system_calls,
            self.faults, self.cold, self.grams,
        )  # fmt: skip
        self._clear()
        return made


class ProfiledSandbox:
    """One sandbox with the counters that were read last."""

    __slots__ = ("_process", "_state", "_transfers", "busy", "cold_until_s", "compute_s", "sandbox", "uses", "window_s")

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.uses = 0
        self.busy = False
        self.cold_until_s: float | None = None  # None: it has not begun its first run
        self.compute_s = 0.0
        self.window_s = 0.0  # compute in the current second
        self._process: ProcessCounters | None = None
        self._transfers, self._state = NO_TRANSFERS, NO_STATE

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def look(
        self,
        sums: ApplicationSums,
        now_s: float,
        pid_of: Callable[[int], int | None],
        device: DeviceReading | None,
        *,
        state: bool,
    ) -> None:
        """Add what the sandbox did since the last look. Faults and memory are read if `state` or its run has ended."""
        sandbox, busy = self.sandbox, self.sandbox.state is BUSY
        calls = sandbox.uses - self.uses
        self.uses = sandbox.uses
        for _ in range(calls):
            sums.note(CALL)
        sums.calls += calls
        sums.at_once = max(sums.at_once, sandbox.flow.in_flight, min(calls, 1))
        if sandbox.state is STARTING:
            return
        if self.cold_until_s is None:
            self.cold_until_s = now_s + COLD_S
        sums.cold = sums.cold or now_s < self.cold_until_s
        if self._process is None:
            self._open(pid_of)
        if self._process is not None:
            self._read(self._process, sums, state=state or not busy or not self.busy)
        if device is not None:
            self._add_compute(sums, max(0.0, device.compute_s - self.compute_s))
            self.compute_s = device.compute_s
            sums.memory_bytes = max(sums.memory_bytes, device.memory_bytes)
        self.busy = busy

    def _open(self, pid_of: Callable[[int], int | None]) -> None:
        pid = pid_of(self.sandbox.id)
        if pid is not None:
            self._process = ProcessCounters(pid)

    def _read(self, process: ProcessCounters, sums: ApplicationSums, *, state: bool) -> None:
        before, now = self._transfers, process.transfers()
        if now.system_calls > before.system_calls:
            sums.read_bytes += now.read_bytes - before.read_bytes
            sums.written_bytes += now.written_bytes - before.written_bytes
            sums.system_calls += now.system_calls - before.system_calls
            self._transfers = now
        if not state:
            return
        earlier, current = self._state, process.state()
        if current.faults < earlier.faults:  # it has ended
            return
        sums.faults += current.faults - earlier.faults
        if not self.sandbox.flow.spec.share:
            self._add_compute(sums, max(0.0, current.compute_s - earlier.compute_s))
            sums.memory_bytes = max(sums.memory_bytes, current.memory_bytes)
        self._state = current

    def _add_compute(self, sums: ApplicationSums, spent_s: float) -> None:
        sums.compute_s += spent_s
        self.window_s += spent_s

    def end_window(self, sums: ApplicationSums, elapsed_s: float) -> None:
        """Count the share of the device that it used in the window that ends."""
        sums.share = max(sums.share, min(1.0, self.window_s / elapsed_s) if self.sandbox.flow.spec.share else 0.0)
        self.window_s = 0.0
