"""The agent: hears what the server says, has the cache, the views and the model do it, and tells what came of it.

Everything here runs on one event loop. What may wait for an origin or for the disk runs in threads and comes back to
the loop; an open of a file is served by the view and the cache alone, and only told here.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec.structs import replace

from aliquot.core.errors import AliquotError
from aliquot.storage.agent.accounts import RunAccount, RunAccounts
from aliquot.storage.agent.datasets import NodeDatasets
from aliquot.storage.agent.model_requests import ModelRequests
from aliquot.storage.agent.predictions import Predictions
from aliquot.storage.agent.prefetches import Prefetches
from aliquot.storage.cache import WarmResult
from aliquot.storage.frames import PACKET_BYTES, view_message_decoder
from aliquot.storage.lookups import DatasetLookups
from aliquot.storage.messages import (
    AgentFigures,
    AskModel,
    BeginRun,
    CancelPrefetch,
    CheckDataset,
    CloseView,
    EndRun,
    EndSession,
    EvictDataset,
    FromAgent,
    HideDataset,
    PutDataset,
    RemoveDataset,
    Reply,
    RollBackModel,
    ShowDataset,
    ShowModels,
    StartAgent,
    StartPrefetch,
    StopWarming,
    ToAgent,
    TrainModel,
    UseModel,
    WarmDataset,
    WarmProgress,
)
from aliquot.storage.origins import Origin
from aliquot.storage.records import Access
from aliquot.storage.view.events import FileOpened, PieceWaited
from aliquot.storage.view.views import ViewServer

log = structlog.get_logger("aliquot.storage")

_FIGURES_INTERVAL_S, _FIGURES_COST_FACTOR = 0.5, 100
_ORIGIN_CLOSE_DELAY_S = 60.0
_ORIGIN_THREADS = 8  # for what may wait for origins, opens, transfers and listings aside
_PRIME_THREADS = 4
_DISK_THREADS = 2
_MODEL_THREADS = 2
LOOKUP_TIMEOUT_S = 5.0  # after which it is told what is known, without what an origin has not said yet
STILL_LISTING = "its files are still being listed; look again later"
STOPPED = "it was stopped"
Send = Callable[[FromAgent], None]
Value = dict[str, int | float | str | None]


class StorageAgent:
    def __init__(self, begin: StartAgent, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        # Apart, so that origins which hang keep nobody from what does not need them.
        self._origins = ThreadPoolExecutor(_ORIGIN_THREADS, "origins")
        self._priming = ThreadPoolExecutor(_PRIME_THREADS, "priming")
        self._disk = ThreadPoolExecutor(_DISK_THREADS, "disk")
        model_threads = ThreadPoolExecutor(_MODEL_THREADS, "models")
        self._shelf = NodeDatasets(begin.settings, begin.datasets)
        self._cache = self._shelf.cache
        self._looks = DatasetLookups(self._shelf.look)
        self._showing: set[asyncio.Task[None]] = set()
        self._accounts = RunAccounts(self._accessed)
        self._guesses = Predictions(
            Path(begin.settings.directory), self._shelf, self._accounts, send, begin.settings.learning
        )
        models = ModelRequests(self._guesses.serving, model_threads, lambda told: self._soon(send, told))
        self._prefetches = Prefetches(self._cache, self._accounts, send)
        self._views = ViewServer(self._cache, self._seen)
        for dataset in begin.datasets:
            self._priming.submit(self._shelf.prime, dataset.name)
        self._warming: dict[int, Future[WarmResult]] = {}
        self._hearers: dict[type, Callable[..., None]] = {
            CheckDataset: lambda message: self._answer(
                self._origins, message.request, self._shelf.check, message.dataset
            ),
            PutDataset: self._put,
            RemoveDataset: self._remove,
            HideDataset: lambda message: self._views.hide(message.name, message.sandboxes),
            EvictDataset: lambda message: self._answer(self._disk, message.request, self._shelf.evict, message.name),
            ShowDataset: self._show,
            WarmDataset: self._warm,
            StopWarming: self._stop_warming,
            BeginRun: self._accounts.begin,
            EndRun: self._end_run,
            EndSession: self._end_session,
            AskModel: self._guesses.ask,
            StartPrefetch: self._prefetches.begin,
            CancelPrefetch: self._prefetches.cancel,
            ShowModels: models.ask,
            TrainModel: models.ask,
            UseModel: models.ask,
            RollBackModel: models.ask,
        }

    # --- what the server says -----------------------------------------------------------------------------

    def hear(self, message: ToAgent) -> None:
        """One message's trouble must not keep the others from being heard."""
        try:
            self._hearers[type(message)](message)
        except Exception:
            log.exception("a message could not be heeded", message=type(message).__name__)

    def take(self, hands: socket.socket) -> None:
        """A view, with its descriptor, is there to be taken."""
        try:
            data, descriptors, _, _ = socket.recv_fds(hands, PACKET_BYTES, 1)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(hands.fileno())
            return
        message = view_message_decoder.decode(data)
        if isinstance(message, CloseView):
            self._views.close(message.sandbox)
            self._accounts.close(message.sandbox)
            return
        try:
            self._views.open(message.sandbox, descriptors[0], message.datasets)
        except Exception:
            log.exception("a view could not be made", sandbox=message.sandbox)
            with suppress(OSError):
                os.close(descriptors[0])

    def close(self) -> None:
        """In a thread: the loop may be waited for."""
        self._views.stop()
        self._cache.close()
        self._guesses.close()

    # --- questions ----------------------------------------------------------------------------------------

    def _answer(self, threads: Executor, request: int, work: Callable[..., Value], *args: object) -> None:
        future = threads.submit(work, *args)
        future.add_done_callback(lambda done: self._soon(self._answered, request, done))

    def _answered(self, request: int, done: Future[Value]) -> None:
        error = done.exception()
        if error is None:
            answer = Reply(request, done.result())
        elif isinstance(error, AliquotError):
            answer = Reply(request, error=str(error))
        else:
            log.error("a question could not be answered", exc_info=error)
            answer = Reply(request, error=f"the storage agent failed: {type(error).__name__}")
        self._send(answer)

    def _show(self, message: ShowDataset) -> None:
        task = self._loop.create_task(self._tell_shown(message))
        self._showing.add(task)
        task.add_done_callback(self._showing.discard)

    async def _tell_shown(self, message: ShowDataset) -> None:
        """What is here, and what is there if that is known in time."""
        looking = self._looks.begin(message.name)
        await asyncio.wait({asyncio.wrap_future(looking)}, timeout=LOOKUP_TIMEOUT_S)
        known: Value = looking.result() if looking.done() else {"trouble": STILL_LISTING}
        self._answer(self._disk, message.request, lambda: self._shelf.here(message.name) | known)

    def _put(self, message: PutDataset) -> None:
        self._looks.forget(message.dataset.name)
        self._let_go(self._shelf.put(message.dataset))
        self._views.renew(message.dataset.name)
        self._priming.submit(self._shelf.prime, message.dataset.name)

    def _remove(self, message: RemoveDataset) -> None:
        self._looks.forget(message.name)
        self._let_go(self._shelf.remove(message.name))
        self._views.drop(message.name)
        self._answer(self._disk, message.request, self._shelf.forget, message.name)

    def _let_go(self, origin: Origin | None) -> None:
        """Of an origin that is no dataset's any more; transfers that are under way may come to their end before."""
        if origin is not None:
            self._loop.call_later(_ORIGIN_CLOSE_DELAY_S, self._origins.submit, origin.close)

    def _warm(self, message: WarmDataset) -> None:
        def told(files: int, of_files: int, size: int, of_bytes: int) -> None:
            self._soon(self._send, WarmProgress(message.request, files, of_files, size, of_bytes))

        ticket = self._warming[message.request] = self._cache.warm(message.name, message.patterns, told)
        ticket.add_done_callback(lambda done: self._soon(self._warmed, message.request, done))

    def _warmed(self, request: int, done: Future[WarmResult]) -> None:
        del self._warming[request]
        if done.cancelled():
            self._send(Reply(request, error=STOPPED))
            return
        if (error := done.exception()) is not None:
            self._send(Reply(request, error=str(error)))
            return
        warmed = done.result()
        if warmed.failed:
            text = f"{warmed.failed} files did not come, {warmed.files} are here; the first: {warmed.error}"
            self._send(Reply(request, error=text))
        else:
            self._send(Reply(request, {"files": warmed.files, "bytes": warmed.bytes}))

    def _stop_warming(self, message: StopWarming) -> None:
        if (ticket := self._warming.get(message.request)) is not None:
            ticket.cancel()

    # --- runs ---------------------------------------------------------------------------------------------

    def _seen(self, told: FileOpened | PieceWaited) -> None:
        """From any thread, before the reader is answered: so it is known here before the run's end is heard of."""
        if isinstance(told, PieceWaited):
            self._soon(self._accounts.waited, told)
            return
        if told.error:
            log.info("a file could not be opened", file=str(told.key), error=told.error)
            told = replace(told, error=self._shelf.redact_for_tenants(told.key.dataset, told.error))
        self._soon(self._accounts.opened, told)

    def _accessed(self, run: RunAccount, opened: FileOpened) -> None:
        begun = run.begun
        assert opened.found is not None  # noqa: S101 - one that failed is no access
        access = Access(
            time_s=time.time(),
            tenant=begun.tenant,
            session=begun.session,
            function=begun.function,
            invocation=begun.invocation,
            dataset=opened.key.dataset,
            path=opened.key.path,
            size=opened.size,
            operation="open",
            waited_s=opened.waited_s,
            found=opened.found,
            user=begun.user,
        )
        self._guesses.accessed(access, run.audience)

    def _end_run(self, message: EndRun) -> None:
        audience = self._accounts.audience(message.invocation)
        expected = self._guesses.expected(audience) if audience is not None else ()
        self._send(self._accounts.end(message.sandbox, message.invocation, expected))

    def _end_session(self, message: EndSession) -> None:
        self._accounts.dismiss((message.tenant, message.session))
        self._guesses.forget((message.tenant, message.session))

    # --- figures ------------------------------------------------------------------------------------------

    async def tell_figures(self) -> None:
        """Until cancelled."""
        told: dict[str, float] = {}
        took_s = 0.0
        while True:
            await asyncio.sleep(
                max(_FIGURES_INTERVAL_S, _FIGURES_COST_FACTOR * took_s)
            )  # of many files it takes a while
            begun_s = time.monotonic()
            figures = await asyncio.to_thread(self._shelf.figures) | self._accounts.figures()
            took_s = time.monotonic() - begun_s
            if figures != told:
                told = figures
                self._send(AgentFigures(figures))

    def _soon(self, call: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever would want to know
            self._loop.call_soon_threadsafe(call, *args)
