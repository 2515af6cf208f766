"""Samples every 10 ms what sandboxes use of accelerators, while anything runs there.

The sampler is a timer on the event loop. A sample takes microseconds, since it reads files that stay open. A thread
would make the loop wait for the interpreter's lock, and files could be closed while it reads them. Ten samples are
processed together, because most of the cost of processing one is a cold processor cache.
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
WINDOW_S = 1.0  # after which the core and the status get a new utilisation
STALE_S = 2.0
SAMPLES_PER_BATCH = 10
_WHOLE_KIB_MASK = ~1023


class UsageSampler:
    def __init__(
        self,
        node: Node,
        scheduler: Scheduler,
        tell: Callable[[UtilisationMeasured], None],
        open_file: Callable[[], UsageFile] | None = None,
    ) -> None:
        """Measure the sandboxes of a node. The usage file is opened when there is something to write."""
        self.totals = ComputeTotals()
        self.sandboxes: dict[int, MeasuredSandbox] = {}
        self.writer = UsageWriter(open_file) if open_file is not None else None
        self._node = node
        self._scheduler = scheduler
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._awake = False
        self._seen: list[tuple[float, list[DeviceUsage]]] = []  # samples that are not processed yet
        self._woke_s = 0.0
        self._window_began_s = 0.0
        self._busy_s: dict[str, float] = {}  # compute by device in this window
        self._reported: dict[str, float] = {}  # utilisation by device

    def wake(self, place: Place) -> None:
        """Start sampling, because something is about to run on these devices."""
        if not self._awake and self._is_accelerator(place):
            self._awake = True
            self._begin(time.monotonic())
            self._loop.call_later(SAMPLE_INTERVAL_S, self._tick)

    def stop(self) -> None:
        self._awake = False
        self.process()
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def refresh(self) -> None:
        """Take a sample now, so that the status is not as old as the last run."""
        if not self._awake:
            self.sample(time.monotonic())
        self.process()

    def utilisation(self, device: str) -> float:
        """Return a device's utilisation in the last full second, or 0 if that was long ago."""
        return 0.0 if self._is_stale(time.monotonic()) else self._reported.get(device, 0.0)

    def share(self, sandbox: int) -> float | None:
        """Return a sandbox's share in the last full second, or None if it is not on an accelerator."""
        measured = self.sandboxes.get(sandbox)
        if measured is None:
            return None
        return 0.0 if self._is_stale(time.monotonic()) else measured.share

    def enforces(self, place: Place) -> bool:
        """Return whether slices are enforced there."""
        return self._node.enforces(place)

    # --- time -------------------------------------------------------------------------------------------

    def _begin(self, now_s: float) -> None:
        self._woke_s = now_s
        if self.writer is not None:
            self.writer.wake()
        if self._is_stale(now_s):
            self._window_began_s = now_s
            self._busy_s.clear()
            for measured in self.sandboxes.values():
                measured.window_s = measured.share = 0.0
            for device in [name for name, share in self._reported.items() if share]:
                self._report(device, 0.0)

    def _is_stale(self, now_s: float) -> bool:
        return now_s - self._window_began_s >= WINDOW_S + STALE_S

    def _tick(self) -> None:
        if not self._awake:
            return
        now_s = time.monotonic()
        self.sample(now_s)
        self._awake = any(device.running for device in self._accelerators())
        if self._awake:
            # The interval counts from the start of this sample. A late sample is not made up for.
            self._loop.call_later(max(0.001, SAMPLE_INTERVAL_S - (time.monotonic() - now_s)), self._tick)
        else:
            self.process()

    def sample(self, now_s: float) -> None:
        """Take a sample of each sandbox."""
        usages = self._node.device_usage()
        for used in usages:
            if used.sandbox not in self.sandboxes:
                self._open(used.sandbox, now_s)
        self._seen.append((now_s, usages))
        if len(self._seen) >= SAMPLES_PER_BATCH:
            self.process()

    def process(self) -> None:
        """Add the samples taken since the last call to the measurements, and write them."""
        seen, self._seen = self._seen, []
        for now_s, usages in seen:
            for used in usages:
                measured = self.sandboxes.get(used.sandbox)
                if measured is not None:
                    self._measure(measured, used, now_s)
            if now_s - self._window_began_s >= WINDOW_S:
                self._end_window(now_s)
        if seen:
            for number in sorted(self.sandboxes.keys() - {used.sandbox for used in seen[-1][1]}):
                self._close(number)
            if self.writer is not None:
                self.writer.flush()

    def _measure(self, measured: MeasuredSandbox, used: DeviceUsage, now_s: float) -> None:
        began_s = max(measured.seen_s, self._woke_s)
        if now_s <= began_s:
            return
        spent_s = max(0.0, used.compute_s - measured.compute_s)
        memory = (used.memory_bytes or 0) & _WHOLE_KIB_MASK
        ceiling = measured.current_ceiling()
        changed = spent_s > 0 or memory != measured.memory_bytes or ceiling != measured.ceiling
        measured.compute_s, measured.memory_bytes, measured.ceiling = used.compute_s, memory, ceiling
        measured.seen_s = now_s
        if spent_s:
            measured.window_s += spent_s
            for device in measured.devices:
                self._busy_s[device] = self._busy_s.get(device, 0.0) + spent_s
            self.totals.add(measured, spent_s)
        if self.writer is not None:
            self.writer.note(measured, began_s, now_s, spent_s, changed=changed)

    # --- sandboxes and devices --------------------------------------------------------------------------

    def _open(self, number: int, now_s: float) -> None:
        sandbox = self._scheduler.pool.sandboxes.get(number)
        if sandbox is not None:  # otherwise the core has stopped it, and its process has not ended yet
            # Compute before its first sample counts as used since the sampler woke, or in the last interval.
            since_s = max(self._woke_s, now_s - SAMPLE_INTERVAL_S)
            self.sandboxes[number] = MeasuredSandbox(sandbox, since_s, enforced=self._node.enforces(sandbox.place))

    def _close(self, number: int) -> None:
        measured = self.sandboxes.pop(number)
        if self.writer is not None:
            self.writer.end(measured)

    def _end_window(self, now_s: float) -> None:
        elapsed_s = now_s - self._window_began_s
        for measured in self.sandboxes.values():
            measured.share = round(measured.window_s / elapsed_s, 4)
            measured.window_s = 0.0
        for device in self._accelerators():
            share = min(1.0, round(self._busy_s.get(device.spec.name, 0.0) / elapsed_s, 4))
            if device.running or self._reported.get(device.spec.name):
                self._report(device.spec.name, share)
        self._busy_s.clear()
        self._window_began_s = now_s

    def _report(self, device: str, share: float) -> None:
        self._reported[device] = share
        self._tell(UtilisationMeasured(device, share))

    def _accelerators(self) -> list[Device]:
        return [device for device in self._scheduler.registry.devices.values() if device.spec.kind != CPU]

    def _is_accelerator(self, place: Place) -> bool:
        found = self._scheduler.registry.devices.get(place[0])
        return found is not None and found.spec.kind != CPU
