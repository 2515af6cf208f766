"""Writes measurements as samples to the usage file. While nothing changes, nothing is written.

A sample covers the time since the one before. When a sandbox uses its device again after a pause, a sample for the end
of the pause is written first, so that the usage is not spread over the pause.
"""

import time
from collections.abc import Callable

import structlog

from aliquot.live.usage.file import UsageFile
from aliquot.live.usage.measurements import MeasuredSandbox
from aliquot.live.usage.records import UsageLabel, UsageSample

log = structlog.get_logger("aliquot.usage")

_MAX_SHARE = 1.5  # of a device: the kernel's counters may be some milliseconds late


class UsageWriter:
    def __init__(self, open_file: Callable[[], UsageFile]) -> None:
        self._open_file = open_file
        self._file: UsageFile | None = None
        self._broken = False
        self._epoch_us = _epoch_us()

    def wake(self) -> None:
        """Begin a series of samples. The time of day is read only here, so that it does not jump within the series."""
        self._epoch_us = _epoch_us()

    def note(self, measured: MeasuredSandbox, began_s: float, now_s: float, spent_s: float, *, changed: bool) -> None:
        """Record that a sandbox has used `spent_s` of compute since `began_s`, and nothing before that.

        More than a whole device means that the driver counts less often than it is read. The compute then belongs to
        all the time since the last sample.
        """
        file = self._open()
        if file is None:
            return
        if measured.label is None:
            self._write_label(file, measured)
            self._write(file, measured, began_s, 0.0)
        if not changed:
            measured.quiet = True
            return
        if file.age(measured.labelled) > file.capacity // 4:
            self._write_label(file, measured)
        if began_s > measured.written_s:
            if spent_s > _MAX_SHARE * (now_s - began_s):
                began_s = measured.written_s
            else:
                self._write(file, measured, began_s, 0.0)
        self._write(file, measured, now_s, spent_s / (now_s - began_s))

    def end(self, measured: MeasuredSandbox) -> None:
        """Record that a sandbox has ended, and used nothing until it was last seen."""
        if self._file is not None and measured.quiet and measured.seen_s > measured.written_s:
            self._write(self._file, measured, measured.seen_s, 0.0)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._file.close()
            self._file = None
        self._broken = True

    def _open(self) -> UsageFile | None:
        if self._file is None and not self._broken:
            try:
                self._file = self._open_file()
            except OSError as error:
                self._broken = True
                log.warning("usage is not recorded: its file cannot be opened", why=str(error))
        return self._file

    def _write_label(self, file: UsageFile, measured: MeasuredSandbox) -> None:
        flow = measured.sandbox.flow.key
        measured.labelled = file.position
        meaning = UsageLabel(flow.tenant, flow.function, measured.sandbox.id, measured.device, measured.enforced)
        measured.label = file.label(meaning, measured.label)

    def _write(self, file: UsageFile, measured: MeasuredSandbox, at_s: float, share: float) -> None:
        measured.written_s, measured.quiet = at_s, False
        t_us = self._epoch_us + round(at_s * 1e6)
        label = measured.label or 0
        file.add(UsageSample(label, t_us, share, measured.request, measured.ceiling, measured.memory_bytes))


def _epoch_us() -> int:
    """Return the time of day at which the monotonic clock was 0."""
    return time.time_ns() // 1000 - round(time.monotonic() * 1e6)
