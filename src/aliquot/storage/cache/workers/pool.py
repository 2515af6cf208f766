"""The worker threads, and the thread that watches over them."""

import threading
import time

from aliquot.storage.cache.transfers.machine import TransferMachine
from aliquot.storage.cache.transfers.transfer import TransferStep
from aliquot.storage.cache.workers.progress import RunningStep, WorkerProgress
from aliquot.storage.cache.workers.steps import StepRunner

JOIN_TIMEOUT_S = 5.0


class TransferWorkers:
    """Starts threads as there is work, up to a limit. Replaces those whose origin does not answer.

    `lock` is the cache's. It is held during every call of the machine.
    """

    def __init__(
        self, lock: threading.Lock, machine: TransferMachine, runner: StepRunner, progress: WorkerProgress
    ) -> None:
        self._lock = lock
        self._machine = machine
        self._runner = runner
        self._progress = progress
        settings = machine.settings
        self._max_threads = settings.workers
        self._watch_interval_s = min(max(min(settings.patience_s, settings.stall_s) / 4, 0.02), 1.0)
        self._work_condition = threading.Condition(lock)
        self._watch_condition = threading.Condition(lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._watcher: threading.Thread | None = None
        self._closing = False

    def wake(self) -> None:
        """Let a worker look for a step. The lock is held."""
        if self._closing:
            return
        self._work_condition.notify()
        if self._idle == 0 and len(self._threads) < self._max_threads:
            name = f"cache worker {len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.add(thread)
            thread.start()
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="cache watch", daemon=True)
            self._watcher.start()

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._work_condition.notify_all()
            self._watch_condition.notify_all()
            threads = [*self._threads, *([self._watcher] if self._watcher is not None else [])]
        ends_s = time.monotonic() + JOIN_TIMEOUT_S
        for thread in threads:  # one that hangs in its origin ends with the process
            thread.join(max(0.0, ends_s - time.monotonic()))

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            with self._lock:
                step = self._next_step(thread)
                if step is None:
                    self._threads.discard(thread)
                    if self._progress.abandoned.pop(thread, None) is not None:
                        self.wake()  # its link may have another worker now
                    return
            try:
                self._runner.perform(step)
            finally:
                with self._lock:
                    self._progress.running.pop(thread, None)

    def _next_step(self, thread: threading.Thread) -> TransferStep | None:
        """Wait for the next step. None: the worker was abandoned, or the cache closes."""
        while not self._closing and thread not in self._progress.abandoned:
            now = time.monotonic()
            step = self._machine.next_step(now=now)
            if step is not None:
                if not self._progress.running:
                    self._watch_condition.notify()
                self._progress.running[thread] = RunningStep(step, now)
                if self._machine.has_more(now=now):
                    self.wake()
                return step
            wake_s = self._machine.wake_s
            self._idle += 1
            self._work_condition.wait(None if wake_s is None else max(wake_s - now, 0.001))
            self._idle -= 1
        return None

    def _watch(self) -> None:
        """Check the running steps periodically, and abandon workers whose origin is silent for too long."""
        while True:
            with self._lock:
                if not self._closing:
                    self._watch_condition.wait(self._watch_interval_s if self._progress.running else None)
                if self._closing:
                    return
                abandoned = self._progress.abandoned
                running = [item for item in self._progress.running.items() if item[0] not in abandoned]
            now = time.monotonic()
            for thread, (step, progress_s) in running:
                if self._runner.is_overdue(step, now - progress_s):
                    self._abandon(thread, step)

    def _abandon(self, thread: threading.Thread, step: TransferStep) -> None:
        """Let another thread take the place of a worker, which ends once its origin answers."""
        with self._lock:
            if self._progress.abandon(thread, step):
                self._threads.discard(thread)
                self.wake()
