"""Looks every 10 ms at what sandboxes use of accelerators, while anything runs there; otherwise it sleeps.

A timer on the event loop, not a thread: a look takes microseconds (files that stay open are read), while a thread would
make the loop wait for the interpreter's lock, and files could be closed under its hands. What was seen is worked up ten
looks at a time: most of what a look alone would cost is that the processor has done something else since the last one.
"""

import asyncio
import time
from collections.abc import Callable

from aliquot.core.device import Device
from aliquot.core.events import UtilisationMeasured
from aliquot.core.model import CPU
from aliquot.core.places import Place
from aliquot.core.scheduler import Scheduler
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Node
from aliquot.live.usage.file import UsageFile
from aliquot.live.usage.measurements import ComputeTotals, MeasuredSandbox
from aliquot.live.usage.writer import UsageWriter

SAMPLE_INTERVAL_S = 0.01
WINDOW_S = 1.0  # after which the core is told, and what people see is renewed
STALE_S = 2.0
SAMPLES_PER_BATCH = 10  # looks
_WHOLE_KIB_MASK = ~1023


class UsageSampler:
    def __init__(
        self,
        node: Node,
        scheduler: Scheduler,
        tell: Callable[[UtilisationMeasured], None],
        open_file: Callable[[], UsageFile] | None = None,
    ) -> None:
        """Samples are written to the file, which is opened when there is something to write."""
        self.totals = ComputeTotals()
        self.accounts: dict[int, MeasuredSandbox] = {}
        self.diary = UsageWriter(open_file) if open_file is not None else None
        self._node = node
        self._scheduler = scheduler
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._awake = False
        self._seen: list[tuple[float, list[DeviceUsage]]] = []  # looks that are not worked up yet
        self._woke_s = 0.0
        self._window_began_s = 0.0
        self._busy_s: dict[str, float] = {}  # by device, in this window
        self._told: dict[str, float] = {}  # by device

    def wake(self, place: Place) -> None:
        """Something is about to run on that device, or those."""
        if not self._awake and self._is_accelerator(place):
            self._awake = True
            self._begin(time.monotonic())
            self._loop.call_later(SAMPLE_INTERVAL_S, self._tick)

    def stop(self) -> None:
        self._awake = False
        self.work_up()
        if self.diary is not None:
            self.diary.close()
            self.diary = None

    def refresh(self) -> None:
        """So that what people see is not as old as the last run."""
        if not self._awake:
            self.look(time.monotonic())
        self.work_up()

    def utilisation(self, device: str) -> float:
        """In the last whole second; 0 when that is long ago."""
        return 0.0 if self._is_stale(time.monotonic()) else self._told.get(device, 0.0)

    def share(self, sandbox: int) -> float | None:
        """The same of a sandbox, if it is on an accelerator."""
        account = self.accounts.get(sandbox)
        if account is None:
            return None
        return 0.0 if self._is_stale(time.monotonic()) else account.share

    def enforces(self, place: Place) -> bool:
        """Whether functions are kept to what they asked for there."""
        return self._node.enforces(place)

    # --- time -------------------------------------------------------------------------------------------

    def _begin(self, now_s: float) -> None:
        self._woke_s = now_s
        if self.diary is not None:
            self.diary.wake()
        if self._is_stale(now_s):
            self._window_began_s = now_s
            self._busy_s.clear()
            for account in self.accounts.values():
                account.window_s = account.share = 0.0
            for device in [name for name, told in self._told.items() if told]:
                self._report(device, 0.0)

    def _is_stale(self, now_s: float) -> bool:
        return now_s - self._window_began_s >= WINDOW_S + STALE_S

    def _tick(self) -> None:
        if not self._awake:
            return
        now_s = time.monotonic()
        self.look(now_s)
        self._awake = any(device.running for device in self._accelerators())
        if self._awake:
            # As far from the moment it was due as it takes: looks that are late do not crowd.
            self._loop.call_later(max(0.001, SAMPLE_INTERVAL_S - (time.monotonic() - now_s)), self._tick)
        else:
            self.work_up()

    def look(self, now_s: float) -> None:
        """Take a sample of each sandbox."""
        found = self._node.device_usage()
        for used in found:
            if used.sandbox not in self.accounts:
                self._open(used.sandbox, now_s)
        self._seen.append((now_s, found))
        if len(self._seen) >= SAMPLES_PER_BATCH:
            self.work_up()

    def work_up(self) -> None:
        seen, self._seen = self._seen, []
        for now_s, found in seen:
            for used in found:
                account = self.accounts.get(used.sandbox)
                if account is not None:
                    self._sample(account, used, now_s)
            if now_s - self._window_began_s >= WINDOW_S:
                self._end_window(now_s)
        if seen:
            for number in sorted(self.accounts.keys() - {used.sandbox for used in seen[-1][1]}):
                self._close(number)
            if self.diary is not None:
                self.diary.flush()

    def _sample(self, account: MeasuredSandbox, used: DeviceUsage, now_s: float) -> None:
        began_s = max(account.seen_s, self._woke_s)
        if now_s <= began_s:
            return
        spent_s = max(0.0, used.compute_s - account.compute_s)
        memory = (used.memory_bytes or 0) & _WHOLE_KIB_MASK
        ceiling = account.now_allotted()
        changed = spent_s > 0 or memory != account.memory_bytes or ceiling != account.ceiling
        account.compute_s, account.memory_bytes, account.ceiling = used.compute_s, memory, ceiling
        account.seen_s = now_s
        if spent_s:
            account.window_s += spent_s
            for device in account.devices:
                self._busy_s[device] = self._busy_s.get(device, 0.0) + spent_s
            self.totals.add(account, spent_s)
        if self.diary is not None:
            self.diary.note(account, began_s, now_s, spent_s, changed=changed)

    # --- sandboxes and devices --------------------------------------------------------------------------

    def _open(self, number: int, now_s: float) -> None:
        sandbox = self._scheduler.pool.sandboxes.get(number)
        if sandbox is not None:  # otherwise the core has sent it away, and it is still dying
            # What it has used before it was first seen counts as used since waking, or in the last look's time.
            since_s = max(self._woke_s, now_s - SAMPLE_INTERVAL_S)
            self.accounts[number] = MeasuredSandbox(sandbox, since_s, enforced=self._node.enforces(sandbox.place))

    def _close(self, number: int) -> None:
        account = self.accounts.pop(number)
        if self.diary is not None:
            self.diary.end(account)

    def _end_window(self, now_s: float) -> None:
        elapsed_s = now_s - self._window_began_s
        for account in self.accounts.values():
            account.share = round(account.window_s / elapsed_s, 4)
            account.window_s = 0.0
        for device in self._accelerators():
            share = min(1.0, round(self._busy_s.get(device.spec.name, 0.0) / elapsed_s, 4))
            if device.running or self._told.get(device.spec.name):
                self._report(device.spec.name, share)
        self._busy_s.clear()
        self._window_began_s = now_s

    def _report(self, device: str, share: float) -> None:
        self._told[device] = share
        self._tell(UtilisationMeasured(device, share))

    def _accelerators(self) -> list[Device]:
        return [device for device in self._scheduler.registry.devices.values() if device.spec.kind != CPU]

    def _is_accelerator(self, place: Place) -> bool:
        found = self._scheduler.registry.devices.get(place[0])
        return found is not None and found.spec.kind != CPU
