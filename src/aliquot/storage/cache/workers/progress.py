"""The progress of workers: when each last received data from its origin, and which links have stopped answering."""

import threading
import time
from typing import NamedTuple

from aliquot.storage.cache.transfers.transfer import TransferStep

MAX_HUNG_WORKERS = 8  # waiting for one link since it last answered; beyond that, it gets no more requests
MAX_HUNG_WORKERS_EVER = 64  # waiting for one link, whether or not it has answered others since


class RunningStep(NamedTuple):
    """The step that a worker performs."""

    step: TransferStep
    progress_s: float  # when the worker last made progress


class _HungWorker(NamedTuple):
    """A worker that was abandoned because its origin did not answer."""

    link: str
    progress_s: float


class WorkerProgress:
    """Keeps the running steps and the abandoned workers.

    Callers hold the cache's lock, except for `worked` and `received`, which write only their own thread's item.
    """

    def __init__(self) -> None:
        self.running: dict[threading.Thread, RunningStep] = {}
        self.abandoned: dict[threading.Thread, _HungWorker] = {}
        self._last_received_s: dict[str, float] = {}  # by link
        self._probed_s: dict[str, float] = {}  # by link

    def worked(self) -> None:
        """Note local progress of the calling worker, so that its origin is not blamed for the time."""
        thread = threading.current_thread()
        running = self.running.get(thread)
        if running is not None:
            self.running[thread] = RunningStep(running.step, time.monotonic())

    def received(self, link: str) -> None:
        """Note that the calling worker received something over a link. Slow is not silent."""
        self.worked()
        self._last_received_s[link] = time.monotonic()

    def abandon(self, thread: threading.Thread, step: TransferStep) -> bool:
        """Note that a worker is abandoned. Return False if it has finished the step meanwhile."""
        running = self.running.get(thread)
        if running is None or running.step is not step:
            return False
        self.abandoned[thread] = _HungWorker(step.transfer.link, running.progress_s)
        return True

    def is_hung(self, link: str, stall_s: float, *, now: float) -> bool:
        """Return whether so many workers hang on a link that another one would hang, too.

        One worker per `stall_s` may still try.
        """
        abandoned = list(self.abandoned.values())
        hung = [worker for worker in abandoned if worker.link == link and now - worker.progress_s > stall_s]
        received_s = self._last_received_s.get(link, float("-inf"))
        hung_since = sum(worker.progress_s >= received_s for worker in hung)
        if len(hung) < MAX_HUNG_WORKERS_EVER and hung_since < MAX_HUNG_WORKERS:
            return False
        if now - self._probed_s.get(link, float("-inf")) > stall_s:
            self._probed_s[link] = now
            return False
        return True
