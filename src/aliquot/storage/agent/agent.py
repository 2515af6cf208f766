"""Handle the server's messages with the cache, the views and the model, and send the results back.

Everything here runs on one event loop. Work that may wait for an origin or the disk runs in threads and returns to the
loop. Opening a file needs only the view and the cache. This module is notified before the reader gets its answer.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import get_args

import structlog
from msgspec.structs import replace

from aliquot.core.errors import AliquotError
from aliquot.storage.agent.accounts import RunAccount, RunAccounts
from aliquot.storage.agent.datasets import NodeDatasets
from aliquot.storage.agent.model_requests import ModelRequests
from aliquot.storage.agent.predictions import Predictions
from aliquot.storage.agent.prefetches import Prefetches
from aliquot.storage.agent.volume_requests import VolumeRequests
from aliquot.storage.cache import WarmOutcome
from aliquot.storage.frames import MAX_PACKET_BYTES, view_message_decoder
from aliquot.storage.lookups import DatasetLookups
from aliquot.storage.messages import (
    AgentFigures,
    BeginRun,
    CancelPrefetch,
    CheckDataset,
    CloseView,
    EndRun,
    EndSession,
    EvictDataset,
    FromAgent,
    HideDataset,
    PredictFiles,
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
from aliquot.storage.records import FileAccess
from aliquot.storage.view.events import FileOpened, PieceWaited
from aliquot.storage.view.views import MAX_HANDLES, ViewServer
from aliquot.storage.volumes.messages import MountVolumes, PutVolume, UnmountVolumes, VolumeRequest
from aliquot.storage.volumes.server import VolumeServer

log = structlog.get_logger("aliquot.storage")

_FIGURES_INTERVAL_S, _FIGURES_COST_FACTOR = 0.5, 100
_ORIGIN_CLOSE_DELAY_S = 60.0
_ORIGIN_THREADS = 8  # for requests that may wait for origins, other than opens, transfers and listings
_PRIME_THREADS = 4
_DISK_THREADS = 2
_MODEL_THREADS = 2
_VOLUME_THREADS = 4
LOOKUP_TIMEOUT_S = 5.0  # then the reply leaves out what the origin has not answered yet
STILL_LISTING = "its files are still being listed; look again later"
STOPPED = "it was stopped"
Send = Callable[[FromAgent], None]
Value = dict[str, int | float | str | None]


class StorageAgent:
    """The agent's side of the connection to the server."""

    def __init__(
        self, begin: StartAgent, send: Send, max_handles: int = MAX_HANDLES, max_volume_handles: int = MAX_HANDLES
    ) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        # Separate pools: an origin that hangs blocks only requests that need origins.
        self._origins = ThreadPoolExecutor(_ORIGIN_THREADS, "origins")
        self._priming = ThreadPoolExecutor(_PRIME_THREADS, "priming")
        self._disk = ThreadPoolExecutor(_DISK_THREADS, "disk")
        model_threads = ThreadPoolExecutor(_MODEL_THREADS, "models")
        self._datasets = NodeDatasets(begin.settings, begin.datasets)
        self._cache = self._datasets.cache
        self._lookups = DatasetLookups(self._datasets.origin_totals)
        self._showing: set[asyncio.Task[None]] = set()
        self._accounts = RunAccounts(self._accessed)
        self._predictions = Predictions(
            Path(begin.settings.directory), self._datasets, self._accounts, send, begin.settings.learning
        )
        models = ModelRequests(self._predictions.serving, model_threads, lambda reply: self._on_loop(send, reply))
        self._prefetches = Prefetches(self._cache, self._accounts, send)
        self._views = ViewServer(self._cache, self._view_event, max_handles=max_handles)
        for dataset in begin.datasets:
            self._priming.submit(self._datasets.prime, dataset.name)
        settings = begin.settings
        self._volumes = VolumeServer(
            settings.volumes_directory, begin.volumes, settings.volumes_reserve_bytes, max_volume_handles
        )
        volume_threads = ThreadPoolExecutor(_VOLUME_THREADS, "volumes")
        self._volume_requests = VolumeRequests(self._volumes, volume_threads, lambda reply: self._on_loop(send, reply))
        self._warming: dict[int, Future[WarmOutcome]] = {}
        self._handlers = self._make_handlers(models)

    def _make_handlers(self, models: ModelRequests) -> dict[type, Callable[..., None]]:
        """Return the table of messages and the methods that handle them."""
        return {
            CheckDataset: lambda message: self._answer(
                self._origins, message.request, self._datasets.check, message.dataset
            ),
            PutDataset: self._put,
            RemoveDataset: self._remove,
            HideDataset: lambda message: self._views.hide(message.name, message.sandboxes),
            EvictDataset: lambda message: self._answer(self._disk, message.request, self._datasets.evict, message.name),
            ShowDataset: self._show,
            WarmDataset: self._warm,
            StopWarming: self._stop_warming,
            BeginRun: self._accounts.begin,
            EndRun: self._end_run,
            EndSession: self._end_session,
            PredictFiles: self._predictions.request,
            StartPrefetch: self._prefetches.begin,
            CancelPrefetch: self._prefetches.cancel,
            ShowModels: models.handle,
            TrainModel: models.handle,
            UseModel: models.handle,
            RollBackModel: models.handle,
            PutVolume: lambda message: self._volumes.put(message.volume),
            **dict.fromkeys(get_args(VolumeRequest), self._volume_requests.handle),
        }

    # --- messages -----------------------------------------------------------------------------------------

    def handle(self, message: ToAgent) -> None:
        """Handle one message. Its failure is logged and does not stop the following ones."""
        try:
            self._handlers[type(message)](message)
        except Exception:
            log.exception("a message could not be handled", message=type(message).__name__)

    def receive_view(self, view_channel: socket.socket) -> None:
        """Receive a message about a view, with its descriptor."""
        try:
            data, descriptors, _, _ = socket.recv_fds(view_channel, MAX_PACKET_BYTES, 1)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(view_channel.fileno())
            return
        message = view_message_decoder.decode(data)
        if isinstance(message, MountVolumes):
            self._volumes.mount(message.sandbox, descriptors[0], message.volumes, message.tenant)
            return
        if isinstance(message, UnmountVolumes):
            self._volumes.unmount(message.sandbox)
            return
        if isinstance(message, CloseView):
            self._views.close(message.sandbox)
            self._accounts.close(message.sandbox)
            return
        try:
            self._views.open(message.sandbox, descriptors[0], message.datasets, message.tenant)
        except Exception:
            log.exception("a view could not be made", sandbox=message.sandbox)
            with suppress(OSError):
                os.close(descriptors[0])

    def close(self) -> None:
        """Stop the views, the cache and the model. Runs in a thread, because it may wait for the loop."""
        self._views.stop()
        self._cache.close()
        self._predictions.close()

    # --- requests -----------------------------------------------------------------------------------------

    def _answer(self, threads: Executor, request: int, work: Callable[..., Value], *args: object) -> None:
        future = threads.submit(work, *args)
        future.add_done_callback(lambda done: self._on_loop(self._answered, request, done))

    def _answered(self, request: int, done: Future[Value]) -> None:
        error = done.exception()
        if error is None:
            answer = Reply(request, done.result())
        elif isinstance(error, AliquotError):
            answer = Reply(request, error=str(error))
        else:
            log.error("a request could not be answered", exc_info=error)
            answer = Reply(request, error=f"the storage agent failed: {type(error).__name__}")
        self._send(answer)

    def _show(self, message: ShowDataset) -> None:
        task = self._loop.create_task(self._reply_shown(message))
        self._showing.add(task)
        task.add_done_callback(self._showing.discard)

    async def _reply_shown(self, message: ShowDataset) -> None:
        """Reply with the cached totals, and with the origin's totals if they are known in time."""
        looking = self._lookups.begin(message.name)
        await asyncio.wait({asyncio.wrap_future(looking)}, timeout=LOOKUP_TIMEOUT_S)
        known: Value = looking.result() if looking.done() else {"trouble": STILL_LISTING}
        self._answer(self._disk, message.request, lambda: self._datasets.cached_totals(message.name) | known)

    def _put(self, message: PutDataset) -> None:
        self._lookups.forget(message.dataset.name)
        self._close_later(self._datasets.put(message.dataset))
        self._views.renew(message.dataset.name)
        self._priming.submit(self._datasets.prime, message.dataset.name)

    def _remove(self, message: RemoveDataset) -> None:
        self._lookups.forget(message.name)
        self._close_later(self._datasets.remove(message.name))
        self._views.drop(message.name)
        self._answer(self._disk, message.request, self._datasets.forget, message.name)

    def _close_later(self, origin: Origin | None) -> None:
        """Close an origin that no dataset uses, after a delay in which running transfers may finish."""
        if origin is not None:
            self._loop.call_later(_ORIGIN_CLOSE_DELAY_S, self._origins.submit, origin.close)

    def _warm(self, message: WarmDataset) -> None:
        def on_progress(files: int, of_files: int, size: int, of_bytes: int) -> None:
            self._on_loop(self._send, WarmProgress(message.request, files, of_files, size, of_bytes))

        future = self._warming[message.request] = self._cache.warm(message.name, message.patterns, on_progress)
        future.add_done_callback(lambda done: self._on_loop(self._warmed, message.request, done))

    def _warmed(self, request: int, done: Future[WarmOutcome]) -> None:
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
        if (future := self._warming.get(message.request)) is not None:
            future.cancel()

    # --- runs ---------------------------------------------------------------------------------------------

    def _view_event(self, event: FileOpened | PieceWaited) -> None:
        """Count an event of a view. It is called before the reader gets its answer, so before the run can end."""
        if isinstance(event, PieceWaited):
            self._on_loop(self._accounts.waited, event)
            return
        if event.error:
            log.info("a file could not be opened", file=str(event.key), error=event.error)
            event = replace(event, error=self._datasets.redact_for_tenants(event.key.dataset, event.error))
        self._on_loop(self._accounts.opened, event)

    def _accessed(self, run: RunAccount, opened: FileOpened) -> None:
        message = run.message
        assert opened.found is not None  # noqa: S101 - a failed open is not counted as an access
        access = FileAccess(
            time_s=time.time(),
            tenant=message.tenant,
            session=message.session,
            function=message.function,
            invocation=message.invocation,
            dataset=opened.key.dataset,
            path=opened.key.path,
            size=opened.size,
            operation="open",
            waited_s=opened.waited_s,
            found=opened.found,
            user=message.user,
        )
        self._predictions.accessed(access, run.audience)

    def _end_run(self, message: EndRun) -> None:
        audience = self._accounts.audience(message.invocation)
        expected = self._predictions.expected(audience) if audience is not None else ()
        self._send(self._accounts.end(message.sandbox, message.invocation, expected))

    def _end_session(self, message: EndSession) -> None:
        self._accounts.end_session((message.tenant, message.session))
        self._predictions.forget((message.tenant, message.session))

    # --- figures ------------------------------------------------------------------------------------------

    async def send_figures(self) -> None:
        """Send the figures whenever they have changed, until cancelled."""
        sent: dict[str, float] = {}
        took_s = 0.0
        while True:
            await asyncio.sleep(
                max(_FIGURES_INTERVAL_S, _FIGURES_COST_FACTOR * took_s)
            )  # counting many files takes a while
            begun_s = time.monotonic()
            figures = await asyncio.to_thread(self._datasets.figures)
            figures |= self._accounts.figures() | self._volumes.figures()
            took_s = time.monotonic() - begun_s
            if figures != sent:
                sent = figures
                self._send(AgentFigures(figures))

    def _on_loop(self, call: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *args)
