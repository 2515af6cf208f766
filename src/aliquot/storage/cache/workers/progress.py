"""The progress of workers: when each last heard from its origin, and which links have stopped answering."""

import threading
import time
from typing import NamedTuple

from aliquot.storage.cache.transfers.transfer import TransferStep

MAX_HUNG_WORKERS = 8  # waiting for one link since it last answered; beyond that, it is not asked again
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

    The cache's lock is held by all callers but those of `worked` and `heard`, which write only their own thread's item.
    """

    def __init__(self) -> None:
        self.running: dict[threading.Thread, RunningStep] = {}
        self.abandoned: dict[threading.Thread, _HungWorker] = {}
        self._heard_s: dict[str, float] = {}  # by link
        self._probed_s: dict[str, float] = {}  # by link

    def worked(self) -> None:
        """Note that the calling worker made progress by itself, so that its origin is not blamed for the time."""
        thread = threading.current_thread()
        running = self.running.get(thread)
        if running is not None:
            self.running[thread] = RunningStep(running.step, time.monotonic())

    def heard(self, link: str) -> None:
        """Note that the calling worker received something over a link. Slow is not silent."""
        self.worked()
        self._heard_s[link] = time.monotonic()

    def abandon(self, thread: threading.Thread, step: TransferStep) -> bool:
        """Note that a worker is abandoned. Return False if it has finished the step meanwhile."""
        running = self.running.get(thread)
        if running is None or running.step is not step:
            return False
        self.abandoned[thread] = _HungWorker(step.transfer.link, running.progress_s)
        return True

    def is_hung(self, link: str, stall_s: float, *, now: float) -> bool:
        """Return whether so many workers hang on a link that another would hang, too.

        One worker per `stall_s` may still try.
        """
        abandoned = list(self.abandoned.values())
        hung = [worker for worker in abandoned if worker.link == link and now - worker.progress_s > stall_s]
        heard_s = self._heard_s.get(link, float("-inf"))
        since_heard = sum(worker.progress_s >= heard_s for worker in hung)
        if len(hung) < MAX_HUNG_WORKERS_EVER and since_heard < MAX_HUNG_WORKERS:
            return False
        if now - self._probed_s.get(link, float("-inf")) > stall_s:
            self._probed_s[link] = now
            return False
        return True
