"""Start and cancel prefetches as the core commands, and report exactly one end for each."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import structlog

from aliquot.core.errors import AliquotError
from aliquot.storage.agent.accounts import RunAccounts
from aliquot.storage.cache import Cache, FetchResult, TransferFuture, Urgency
from aliquot.storage.messages import CancelPrefetch, FromAgent, PrefetchEnded, StartPrefetch
from aliquot.storage.records import FileKey, Found

log = structlog.get_logger("aliquot.storage")


class Prefetches:
    """The prefetches that are running. Used on the event loop only."""

    def __init__(self, cache: Cache, accounts: RunAccounts, send: Callable[[FromAgent], None]) -> None:
        self._cache = cache
        self._accounts = accounts
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, tuple[TransferFuture[FetchResult], float]] = {}

    def begin(self, message: StartPrefetch) -> None:
        begun_s = time.monotonic()
        key = FileKey(message.dataset, message.path)
        try:
            self._accounts.prefetch_started(key, message.reason)
            future = self._cache.fetch(key, urgency=Urgency.PREFETCH)
        except Exception as error:  # noqa: BLE001 - the core waits for an end in any case
            self._failed(message, 0, error)
            return
        self._running[message.fetch] = (future, begun_s)
        future.add_done_callback(lambda done: self._post_end(message, done))

    def cancel(self, message: CancelPrefetch) -> None:
        """Cancel a prefetch, or do nothing if it has ended. An open of the same file is not affected."""
        running = self._running.get(message.fetch)
        if running is not None:
            running[0].cancel()

    def _post_end(self, message: StartPrefetch, done: Future[FetchResult]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ended, message, done)

    def _ended(self, message: StartPrefetch, done: Future[FetchResult]) -> None:
        future, begun_s = self._running.pop(message.fetch)
        seconds = time.monotonic() - begun_s
        try:
            if done.cancelled() or done.exception() is not None:  # the bytes received so far are wasted
                self._accounts.prefetch_cancelled((message.tenant, message.session), future.moved_bytes)
            if not done.cancelled():
                self._count(message, done.result(), seconds)
        except Exception as error:  # noqa: BLE001 - the transfer's error or our own: both are reported
            self._failed(message, seconds, error)
        else:
            self._send(PrefetchEnded(message.fetch, seconds))

    def _count(self, message: StartPrefetch, fetched: FetchResult, seconds: float) -> None:
        key = FileKey(message.dataset, message.path)
        if fetched.found is Found.PREFETCHED:
            self._accounts.prefetched((message.tenant, message.session), key, fetched.listed.size, seconds)
        else:
            self._accounts.prefetch_overtaken(key, seconds)

    def _failed(self, message: StartPrefetch, seconds: float, error: Exception) -> None:
        if not isinstance(error, AliquotError):
            log.error("a prefetch failed", dataset=message.dataset, exc_info=error)
        self._send(PrefetchEnded(message.fetch, seconds, str(error) or type(error).__name__))
