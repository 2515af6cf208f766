"""Answer the operator's requests about models in threads, because loading a model takes time."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeAlias

import structlog

from aliquot.learn.version_choice import ModelError
from aliquot.storage.messages import ModelsReply, RollBackModel, ShowModels, TrainModel, UseModel
from aliquot.storage.model_service import ModelService
from aliquot.storage.models import ModelsState

ModelRequest: TypeAlias = ShowModels | TrainModel | UseModel | RollBackModel

log = structlog.get_logger("aliquot.storage")


class ModelRequests:
    """Performs requests and passes each reply to `send`, which is called from a thread."""

    def __init__(self, serving: ModelService, threads: Executor, send: Callable[[ModelsReply], None]) -> None:
        self._serving = serving
        self._threads = threads
        self._send = send

    def handle(self, message: ModelRequest) -> None:
        self._threads.submit(self._work, message)

    def _work(self, message: ModelRequest) -> None:
        try:
            reply = ModelsReply(message.request, self._answer(message))
        except ModelError as error:
            reply = ModelsReply(message.request, error=str(error))
        except Exception as error:
            log.exception("a question about models could not be answered")
            reply = ModelsReply(message.request, error=f"the storage agent failed: {type(error).__name__}: {error}")
        self._send(reply)

    def _answer(self, message: ModelRequest) -> ModelsState:
        match message:
            case TrainModel():
                return self._serving.train()
            case UseModel():
                return self._serving.use(message.version, message.predictor)
            case RollBackModel():
                return self._serving.roll_back()
        return self._serving.state()
