"""The storage fabric as the service and the gateway use it: what the agent is asked, and what comes of it.

It decides nothing: predictions and the ends of prefetches go to the core as events, and the core's commands to the
agent. When the agent dies, whoever waits for it is told, and the next one learns which datasets there are.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import structlog

from aliquot.core.commands import CancelFetch, Fetch, Predict
from aliquot.core.events import DatasetRemoved, Event, FetchEnded, FilesPredicted, LikelyFile, SessionBegan
from aliquot.live.datasets.agent import Agent
from aliquot.live.datasets.datasets import Datasets
from aliquot.live.datasets.readers import Readers
from aliquot.live.datasets.requests import AgentError, AgentLostError, Requests, Value
from aliquot.live.store.base import Store
from aliquot.storage.messages import (
    AgentFailed,
    AgentFigures,
    AskModel,
    CancelPrefetch,
    CheckDataset,
    EndSession,
    EvictDataset,
    FromAgent,
    ModelsReply,
    Predicted,
    PrefetchEnded,
    PutDataset,
    RemoveDataset,
    Reply,
    RollBackModel,
    RunSettled,
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
from aliquot.storage.models import ModelsState
from aliquot.storage.records import Dataset
from aliquot.storage.settings import FabricSettings

log = structlog.get_logger("aliquot.fabric")

LOST = "the storage agent ended"
_LEAVE_S = 10.0  # for the files of a dataset that was removed


class FabricListener(Protocol):
    """Receives the fabric's events. The service implements it."""

    def post(self, event: Event) -> None:
        """Pass an event to the scheduler."""
        ...

    def view_lost(self, sandbox: int) -> None:
        """Handle a sandbox that cannot see its datasets any more."""
        ...

    def user_of(self, tenant: str, session: str) -> str:
        """Return the user of a session, or an empty text."""
        ...


class _NoListener:
    """Stands in until the fabric is started, and in tests that have no service."""

    def post(self, event: Event) -> None:
        """Ignore the event."""

    def view_lost(self, sandbox: int) -> None:
        """Ignore the loss."""

    def user_of(self, tenant: str, session: str) -> str:
        """Return an empty text, since no session is known."""
        return ""


class Fabric:
    """Implements `Peer`."""

    def __init__(self, store: Store, settings: FabricSettings | None = None) -> None:
        """Without settings there are datasets, but no agent: for tests of what stands before it."""
        self._settings = settings
        self._listener: FabricListener = _NoListener()
        self.datasets = Datasets(store, self._changed)
        self.figures: dict[str, float] = {}
        self._agent = Agent(self, never=settings is None)
        self._requests = Requests()
        self._leaving: dict[str, asyncio.Future[None]] = {}  # datasets that were removed
        self._failure = ""  # the last words of an agent that could not work
        self._asked: dict[tuple[str, str], None] = {}  # audiences of which the model has not spoken yet
        self._fetches: dict[int, None] = {}
        self.readers = Readers(
            self._agent.send,
            self._agent.handover,
            self.datasets.is_shown,
            view_lost=self._view_lost,
            user_of=self._user_of,
        )

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self, listener: FabricListener) -> None:
        """Read the datasets, and start the agent if there are any."""
        self._listener = listener
        await self.datasets.load()
        if self.datasets.all():
            self._agent.start()

    def _view_lost(self, sandbox: int) -> None:
        self._listener.view_lost(sandbox)

    def _user_of(self, tenant: str, session: str) -> str:
        return self._listener.user_of(tenant, session)

    async def stop(self) -> None:
        await self._agent.stop()
        self.readers.stop()

    # --- what people ask for ------------------------------------------------------------------------------

    async def check(self, dataset: Dataset) -> Value:
        """Whether its origin opens and lists. Raises `AgentError` with what it said."""
        return await self._ask(lambda number: CheckDataset(number, dataset))

    async def show(self, name: str) -> Value:
        """Files and bytes, there and here. Raises `AgentError`."""
        return await self._ask(lambda number: ShowDataset(number, name))

    async def evict(self, name: str) -> Value:
        """Its files leave the node. Raises `AgentError`."""
        return await self._ask(lambda number: EvictDataset(number, name))

    async def warm(self, name: str, patterns: tuple[str, ...], told: Callable[[WarmProgress], None]) -> Value:
        """Bring all that matches; when the caller is cancelled, it stops. Raises `AgentError`."""
        number = self._begin(lambda number: WarmDataset(number, name, patterns), told)
        try:
            value: Value = await self._requests.answer(number)
        except asyncio.CancelledError:
            self._agent.send(StopWarming(number))
            raise
        return value

    async def models(self) -> ModelsState:
        """Raises `AgentError`, as the next three do."""
        return await self._ask_of_models(ShowModels)

    async def train_model(self) -> ModelsState:
        return await self._ask_of_models(TrainModel)

    async def use_model(self, version: int | None, predictor: str | None) -> ModelsState:
        return await self._ask_of_models(lambda number: UseModel(number, version, predictor))

    async def roll_back_model(self) -> ModelsState:
        return await self._ask_of_models(RollBackModel)

    async def _ask(self, make: Callable[[int], ToAgent]) -> Value:
        value: Value = await self._requests.answer(self._begin(make))
        return value

    async def _ask_of_models(self, make: Callable[[int], ToAgent]) -> ModelsState:
        state: ModelsState = await self._requests.answer(self._begin(make))
        return state

    def _begin(self, make: Callable[[int], ToAgent], told: Callable[[WarmProgress], None] = lambda _: None) -> int:
        if self._settings is None:
            raise AgentError("no storage agent runs here")
        number = self._requests.next(told)
        self._agent.send(make(number))
        return number

    def _changed(self, before: Dataset | None, after: Dataset | None) -> None:
        """Who may not see it any more, or would see another of its name, does not go on with the old."""
        if before is not None:  # first: the agent must not show the next one to whom this one is taken from
            self.readers.retire(before, after)
        if after is not None:
            self._agent.send(PutDataset(after))
        elif before is not None:
            self._leaving[before.name] = asyncio.ensure_future(self._leave(before.name))
        if before is not None and (after is None or (before.url, before.options) != (after.url, after.options)):
            self._listener.post(DatasetRemoved(before.name))

    async def _leave(self, name: str) -> None:
        # Another agent finds that there is no such dataset, and a slow one gets to it: that need not be waited for.
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._ask(lambda number: RemoveDataset(number, name))

    async def left(self, name: str) -> None:
        """A dataset that was removed is gone from the node: one that is added under its name is another."""
        if (leaving := self._leaving.pop(name, None)) is not None:
            await asyncio.shield(leaving)

    # --- what the core commands ---------------------------------------------------------------------------

    def session_began(self, tenant: str, session: str) -> None:
        """Where there is nothing to bring, the core need not know."""
        if self.datasets.shown_to(tenant):
            self._listener.post(SessionBegan(tenant, session))

    def session_ended(self, tenant: str, session: str) -> None:
        if self.datasets.all():
            self._agent.send(EndSession(tenant, session))

    def predict(self, command: Predict) -> None:
        if not self.datasets.shown_to(command.tenant):
            self._listener.post(FilesPredicted(command.tenant, command.session, "", ()))
            return
        self._asked[command.tenant, command.session] = None
        user = self._listener.user_of(command.tenant, command.session)
        self._agent.send(AskModel(command.tenant, command.session, command.function, user))

    def fetch(self, command: Fetch) -> None:
        self._fetches[command.fetch] = None
        self._agent.send(
            StartPrefetch(command.fetch, command.tenant, command.session, command.dataset, command.path, command.reason)
        )

    def cancel(self, command: CancelFetch) -> None:
        if command.fetch in self._fetches:
            self._agent.send(CancelPrefetch(command.fetch))

    # --- Peer ---------------------------------------------------------------------------------------------

    def greeting(self) -> StartAgent:
        return StartAgent(self._settings or FabricSettings(), tuple(self.datasets.all()))

    def heard(self, message: FromAgent) -> None:
        match message:
            case Reply() | ModelsReply() | WarmProgress():
                self._requests.heard(message)
            case AgentFailed():
                log.error("the storage agent cannot work", error=message.error)
                self._failure = message.error
            case RunSettled():
                self.readers.settled(message)
            case AgentFigures():
                self.figures = message.values
            case Predicted():
                self._asked.pop((message.tenant, message.session), None)
                files = tuple(LikelyFile(one.dataset, one.path, one.size, one.probability) for one in message.files)
                self._listener.post(FilesPredicted(message.tenant, message.session, message.model, files))
            case PrefetchEnded() if message.fetch in self._fetches:
                del self._fetches[message.fetch]
                self._listener.post(FetchEnded(message.fetch, message.seconds, message.error))

    def lost(self) -> None:
        why, self._failure = self._failure or "try again", ""
        self._requests.fail(AgentLostError(f"{LOST}; {why}"))
        asked, self._asked = self._asked, {}
        for tenant, session in asked:
            self._listener.post(FilesPredicted(tenant, session, "", ()))
        fetches, self._fetches = self._fetches, {}
        for fetch in fetches:
            self._listener.post(FetchEnded(fetch, 0, LOST))
        self.figures = {}
        self.readers.lost()
