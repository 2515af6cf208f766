"""Predict the files to be opened next, when the core requests it and after every open, one prediction at a time."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from aliquot.core.prefetching.records import AudienceKey
from aliquot.learn.settings import LearnSettings
from aliquot.storage.agent.accounts import RunAccounts
from aliquot.storage.agent.datasets import NodeDatasets
from aliquot.storage.log import AccessLog
from aliquot.storage.messages import FromAgent, Predicted, PredictFiles
from aliquot.storage.model_service import ModelService
from aliquot.storage.records import FileAccess, FileKey, Likely

log = structlog.get_logger("aliquot.storage")

LOG, MODELS = "accesses.db", "models"


class Predictions:
    """Makes predictions from the access log and the serving model, and sends them to the core."""

    def __init__(
        self, directory: Path, datasets: NodeDatasets, accounts: RunAccounts, send: Callable[[FromAgent], None],
        learning: LearnSettings,
    ) -> None:  # fmt: skip
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._datasets = datasets
        self._accounts = accounts
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._log = AccessLog(directory / LOG)
        self.serving = ModelService(directory / MODELS, self._log, learning)
        self._thread = ThreadPoolExecutor(1, "model")  # one thread predicts in the order of the requests
        self._lock = threading.Lock()
        self._waiting: dict[
            AudienceKey, PredictFiles | None
        ] = {}  # waiting requests: the core's, or None after an open
        self._expected: dict[AudienceKey, tuple[FileKey, ...]] = {}

    def accessed(self, access: FileAccess, audience: AudienceKey) -> None:
        self._log.add(access)
        self._enqueue(audience, None)

    def request(self, message: PredictFiles) -> None:
        audience = (message.tenant, message.session)
        self._accounts.reopen(audience)
        self._enqueue(audience, message)

    def expected(self, audience: AudienceKey) -> Iterable[FileKey]:
        return self._expected.get(audience, ())

    def forget(self, audience: AudienceKey) -> None:
        self._expected.pop(audience, None)
        self._log.forget(*audience)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.serving.close()
        self._log.close()

    # --- the model's thread ---------------------------------------------------------------------------------

    def _enqueue(self, audience: AudienceKey, message: PredictFiles | None) -> None:
        """Queue a request. Opens that arrive before its prediction share it, and a request of the core is kept."""
        with self._lock:
            waiting = audience in self._waiting
            self._waiting[audience] = message or self._waiting.get(audience)
        if not waiting:
            self._thread.submit(self._predict, audience)

    def _predict(self, audience: AudienceKey) -> None:
        """Predict for one audience. Runs in the model's thread."""
        tenant, name = audience
        with self._lock:
            message = self._waiting.pop(audience)
        function, user = (message.function, message.user) if message is not None else (None, "")
        model = ""
        files: list[Likely] = []
        try:
            model, files = self.serving.next_files(tenant, name, function, user)
        except Exception:
            log.exception("the model failed", tenant=tenant)
        self._loop.call_soon_threadsafe(self._send_predicted, audience, model, self._shown(tenant, files))

    def _shown(self, tenant: str, files: list[Likely]) -> list[Likely]:
        return [file for file in files if self._datasets.is_shown(file.dataset, tenant)]

    def _send_predicted(self, audience: AudienceKey, model: str, files: list[Likely]) -> None:
        if not self._accounts.has_ended(audience):
            self._expected[audience] = tuple(FileKey(file.dataset, file.path) for file in files)
        has = self._datasets.cache.has
        missing = tuple(file for file in files if not has(FileKey(file.dataset, file.path)))
        self._send(Predicted(*audience, model, missing))
