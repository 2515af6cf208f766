"""Send spans to a collector from a thread of its own. What does not leave in time is dropped and counted."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aliquot.budgets import Budget
from aliquot.live.history.spans.calls import CallSpan

Export = Callable[[Sequence[CallSpan]], bool]  # sends spans, and returns whether the collector has taken them

CLOSE_TIMEOUT_S = 3.0


class SpanCounts(NamedTuple):
    """The spans since the start, by what became of them."""

    sent: int = 0
    failed: int = 0  # the collector did not take them
    dropped: int = 0  # there were too many to wait for the collector


class SendingLimits(NamedTuple):
    """Bounds of the queue of spans, by the names of OpenTelemetry's variables."""

    max_queue_size: int = 8192  # spans
    max_export_batch_size: int = 512
    schedule_delay_s: float = 5.0


class SpanSender:
    """Queues spans, and exports them in batches. Namespaces share the queue, so that none keeps the others' out."""

    def __init__(self, export: Export, limits: SendingLimits) -> None:
        self._export = export
        self._limits = limits
        self._queue: deque[tuple[str, CallSpan]] = deque()  # with the namespace
        self._places = Budget("spans", "spans", limits.max_queue_size)
        self._sent = self._failed = self._dropped = 0
        self._wake = threading.Condition()
        self._closing = False
        # A collector that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> SpanCounts:
        with self._wake:
            return SpanCounts(self._sent, self._failed, self._dropped)

    def put(self, namespace: str, spans: Sequence[CallSpan]) -> None:
        """Queue the spans of a call, or drop them if they do not fit. This never waits."""
        with self._wake:
            if not self._places.fits(namespace, len(spans)):
                self._dropped += len(spans)
                return
            self._places.take(namespace, len(spans))
            self._queue += [(namespace, span) for span in spans]
            if len(self._queue) >= self._limits.max_export_batch_size:
                self._wake.notify()

    def close(self) -> None:
        """Send what is queued, and count what a slow collector does not take in time as dropped."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(CLOSE_TIMEOUT_S)
        with self._wake:
            self._dropped += len(self._queue)
            self._queue.clear()

    def _run(self) -> None:
        while batch := self._next_batch():
            taken = self._export(batch)
            with self._wake:
                if taken:
                    self._sent += len(batch)
                else:
                    self._failed += len(batch)

    def _next_batch(self) -> list[CallSpan]:
        """Wait for spans. An empty batch is the end."""
        size = self._limits.max_export_batch_size
        with self._wake:
            while not self._closing and len(self._queue) < size:
                timed_out = not self._wake.wait(self._limits.schedule_delay_s)
                if timed_out and self._queue:
                    break
            taken = [self._queue.popleft() for _ in range(min(size, len(self._queue)))]
            for namespace, count in Counter(namespace for namespace, _ in taken).items():
                self._places.give_back(namespace, count)
            return [span for _, span in taken]
