"""Accounts as samples in the usage file, as few as say it all: while nothing changes, nothing is written.

A sample covers the time since the one before. When something is used after a while of nothing, the end of that while is
written first, so that it is not smeared over it.
"""

import time
from collections.abc import Callable

import structlog

from aliquot.live.usage.file import UsageFile
from aliquot.live.usage.measurements import MeasuredSandbox
from aliquot.live.usage.records import UsageLabel, UsageSample

log = structlog.get_logger("aliquot.usage")

_TOO_MUCH = 1.5  # of a device; the kernel's own counts may be some milliseconds late


class UsageWriter:
    def __init__(self, open_file: Callable[[], UsageFile]) -> None:
        self._open_file = open_file
        self._file: UsageFile | None = None
        self._broken = False
        self._epoch_us = _epoch_us()

    def wake(self) -> None:
        """Samples begin after a while of none. While they go on the time of day is not looked at: it shall not jump."""
        self._epoch_us = _epoch_us()

    def note(self, account: MeasuredSandbox, began_s: float, now_s: float, spent_s: float, *, changed: bool) -> None:
        """It used that much compute since `began_s`, and nothing between what was written last and then.

        Unless that is more than there is: then the driver counts more seldom than it is asked; all that time is meant.
        """
        file = self._ready()
        if file is None:
            return
        if account.label is None:
            self._name(file, account)
            self._write(file, account, began_s, 0.0)
        if not changed:
            account.quiet = True
            return
        if file.age(account.labelled) > file.capacity // 4:
            self._name(file, account)
        if began_s > account.written_s:
            if spent_s > _TOO_MUCH * (now_s - began_s):
                began_s = account.written_s
            else:
                self._write(file, account, began_s, 0.0)
        self._write(file, account, now_s, spent_s / (now_s - began_s))

    def end(self, account: MeasuredSandbox) -> None:
        """It is gone: it used nothing until it was seen last."""
        if self._file is not None and account.quiet and account.seen_s > account.written_s:
            self._write(self._file, account, account.seen_s, 0.0)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._file.close()
            self._file = None
        self._broken = True

    def _ready(self) -> UsageFile | None:
        if self._file is None and not self._broken:
            try:
                self._file = self._open_file()
            except OSError as error:
                self._broken = True
                log.warning("usage is not kept: its file cannot be opened", why=str(error))
        return self._file

    def _name(self, file: UsageFile, account: MeasuredSandbox) -> None:
        flow = account.sandbox.flow.key
        account.labelled = file.position
        meaning = UsageLabel(flow.tenant, flow.function, account.sandbox.id, account.device, account.enforced)
        account.label = file.label(meaning, account.label)

    def _write(self, file: UsageFile, account: MeasuredSandbox, at_s: float, share: float) -> None:
        account.written_s, account.quiet = at_s, False
        t_us = self._epoch_us + round(at_s * 1e6)
        label = account.label or 0
        file.add(UsageSample(label, t_us, share, account.request, account.ceiling, account.memory_bytes))


def _epoch_us() -> int:
    """When the monotonic clock was 0."""
    return time.time_ns() // 1000 - round(time.monotonic() * 1e6)
