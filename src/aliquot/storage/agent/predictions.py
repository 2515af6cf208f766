"""Ask the model which files will be opened: when the core asks and after every open, one question at a time."""

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
from aliquot.storage.messages import AskModel, FromAgent, Predicted
from aliquot.storage.model_service import ModelService
from aliquot.storage.records import FileAccess, FileKey, Likely

log = structlog.get_logger("aliquot.storage")

LOG, MODELS = "accesses.db", "models"


class Predictions:
    """Answers the core's questions from the access log and the model that serves."""

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
        self._thread = ThreadPoolExecutor(1, "model")  # one thread answers in the order of the questions
        self._lock = threading.Lock()
        self._asking: dict[AudienceKey, AskModel | None] = {}  # waiting questions: the core's, or None after an open
        self._expected: dict[AudienceKey, tuple[FileKey, ...]] = {}

    def accessed(self, access: FileAccess, audience: AudienceKey) -> None:
        self._log.add(access)
        self._ask(audience, None)

    def ask(self, message: AskModel) -> None:
        audience = (message.tenant, message.session)
        self._accounts.reopen(audience)
        self._ask(audience, message)

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

    def _ask(self, audience: AudienceKey, message: AskModel | None) -> None:
        """Queue a question. Opens that arrive before the model answers share one answer; the core's question stays."""
        with self._lock:
            waiting = audience in self._asking
            self._asking[audience] = message or self._asking.get(audience)
        if not waiting:
            self._thread.submit(self._answer, audience)

    def _answer(self, audience: AudienceKey) -> None:
        """Answer one audience's question. Runs in the model's thread."""
        tenant, name = audience
        with self._lock:
            asked = self._asking.pop(audience)
        function, user = (asked.function, asked.user) if asked is not None else (None, "")
        model = ""
        files: list[Likely] = []
        try:
            model, files = self.serving.next_files(tenant, name, function, user)
        except Exception:
            log.exception("the model failed", tenant=tenant)
        self._loop.call_soon_threadsafe(self._tell, audience, model, self._shown(tenant, files))

    def _shown(self, tenant: str, files: list[Likely]) -> list[Likely]:
        return [file for file in files if self._datasets.is_shown(file.dataset, tenant)]

    def _tell(self, audience: AudienceKey, model: str, files: list[Likely]) -> None:
        if not self._accounts.has_ended(audience):
            self._expected[audience] = tuple(FileKey(file.dataset, file.path) for file in files)
        has = self._datasets.cache.has
        missing = tuple(file for file in files if not has(FileKey(file.dataset, file.path)))
        self._send(Predicted(*audience, model, missing))
