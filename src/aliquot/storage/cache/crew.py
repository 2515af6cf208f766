"""The workers' threads, and the watch over them: whoever waits for an origin that says nothing is told in time."""

import threading
import time
from typing import NamedTuple, Protocol

from aliquot.storage.cache.transfer import Step

MOST_HUNG = 8  # threads that wait for one link since it last said anything, before it is left alone
MOST_LOST = 64  # and all that ever hung there, and still do
ENDING_S = 5.0


class _Hung(NamedTuple):
    """A worker that was left to itself."""

    link: str
    since_s: float  # when it last came on


class Work(Protocol):
    def pick(self, now: float) -> Step | None:
        """The next step, which is under way from now on. The lock is held."""

    def has_more(self, now: float) -> bool:
        """Whether there is a step for another worker, too, or will be by itself. The lock is held."""

    def wake_s(self) -> float | None:
        """When to pick again although nothing has happened. The lock is held."""

    def perform(self, step: Step) -> None: ...
    def is_overdue(self, step: Step, silent_s: float) -> bool:
        """Whether the worker, which has not come on for so long, is to be left to itself."""


class Crew:
    """Threads are started as there is work. The lock is that of whoever has the work."""

    def __init__(self, workers: int, lock: threading.Lock, work: Work, look_every_s: float) -> None:
        self._workers = workers
        self._lock = lock
        self._work_bell = threading.Condition(lock)
        self._watch_bell = threading.Condition(lock)
        self._work = work
        self._look_every_s = look_every_s
        self._threads: set[threading.Thread] = set()
        self._abandoned: dict[threading.Thread, _Hung] = {}
        self._heard_s: dict[str, float] = {}  # by link
        self._probed_s: dict[str, float] = {}  # by link
        self._running: dict[threading.Thread, tuple[Step, float]] = {}  # and when it last came on
        self._idle = 0
        self._watch: threading.Thread | None = None
        self._closing = False

    def call(self) -> None:
        """There is work, perhaps. The lock is held."""
        if self._closing:
            return
        self._work_bell.notify()
        if self._idle == 0 and len(self._threads) < self._workers:
            self._start()
        if self._watch is None:
            self._watch = threading.Thread(target=self._look, name="cache watch", daemon=True)
            self._watch.start()

    def is_hung(self, link: str, silent_s: float, *, now: float) -> bool:
        """Whether so many have waited there for so long that another would only wait, too. One may try now and then."""
        lost = [hung for hung in list(self._abandoned.values()) if hung.link == link and now - hung.since_s > silent_s]
        since_s = self._heard_s.get(link, float("-inf"))
        if len(lost) < MOST_LOST and sum(hung.since_s >= since_s for hung in lost) < MOST_HUNG:
            return False
        if now - self._probed_s.get(link, float("-inf")) > silent_s:
            self._probed_s[link] = now
            return False
        return True

    def came_on(self, link: str = "") -> None:
        """By a worker; with a link, because that has said something. Without the lock: only its own line is written."""
        me, now = threading.current_thread(), time.monotonic()
        running = self._running.get(me)
        if running is not None:
            self._running[me] = (running[0], now)
        if link:
            self._heard_s[link] = now

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._work_bell.notify_all()
            self._watch_bell.notify_all()
            threads = [*self._threads, *([self._watch] if self._watch is not None else [])]
        ends = time.monotonic() + ENDING_S
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))  # one that hangs in an origin ends with the process

    def _start(self) -> None:
        thread = threading.Thread(target=self._labour, name=f"cache worker {len(self._threads)}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _labour(self) -> None:
        me = threading.current_thread()
        while True:
            with self._lock:
                step = self._next(me)
                if step is None:
                    self._threads.discard(me)
                    if self._abandoned.pop(me, None) is not None:
                        self.call()  # what it had in hand may be taken up by somebody else now
                    return
            try:
                self._work.perform(step)
            finally:
                with self._lock:
                    self._running.pop(me, None)

    def _next(self, me: threading.Thread) -> Step | None:
        while not self._closing and me not in self._abandoned:
            now = time.monotonic()
            step = self._work.pick(now)
            if step is not None:
                if not self._running:
                    self._watch_bell.notify()
                self._running[me] = (step, now)
                if self._work.has_more(now):
                    self.call()
                return step
            wake_s = self._work.wake_s()
            self._idle += 1
            self._work_bell.wait(None if wake_s is None else max(wake_s - now, 0.001))
            self._idle -= 1
        return None

    def _look(self) -> None:
        while True:
            with self._lock:
                if not self._closing:
                    self._watch_bell.wait(self._look_every_s if self._running else None)
                if self._closing:
                    return
                running = [item for item in self._running.items() if item[0] not in self._abandoned]
            now = time.monotonic()
            for thread, (step, since_s) in running:
                if self._work.is_overdue(step, now - since_s):
                    self._abandon(thread, step)

    def _abandon(self, thread: threading.Thread, step: Step) -> None:
        """Another takes its place; it ends when its origin lets it go."""
        with self._lock:
            running = self._running.get(thread)
            if running is not None and running[0] is step:
                self._abandoned[thread] = _Hung(step.transfer.link, running[1])
                self._threads.discard(thread)
                self.call()
