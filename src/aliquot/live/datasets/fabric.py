"""The storage fabric: the service and the gateway use it to reach datasets and the storage agent.

It makes no decisions. It posts predictions and ended prefetches to the core as events, and sends the core's commands to
the agent. When the agent dies, waiting requests fail, and the next agent gets the list of datasets.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import structlog

from aliquot.core.commands import CancelFetch, Fetch, Predict
from aliquot.core.events import DatasetRemoved, Event, FetchEnded, FilesPredicted, LikelyFile, SessionBegan
from aliquot.learn.settings import LearnSettings
from aliquot.live.datasets.agent_process import StorageAgentProcess
from aliquot.live.datasets.agent_requests import AgentError, AgentLostError, AgentReply, AgentRequests
from aliquot.live.datasets.readers import DatasetReaders
from aliquot.live.datasets.registry import DatasetRegistry
from aliquot.live.datasets.volume_files import VolumeFilesClient
from aliquot.live.datasets.volume_mounts import VolumeMounts
from aliquot.live.datasets.volumes import Volume, VolumeRegistry
from aliquot.live.store.base import Store
from aliquot.storage.messages import (
    AgentFailed,
    AgentFigures,
    CancelPrefetch,
    CheckDataset,
    EndSession,
    EvictDataset,
    FromAgent,
    ModelsReply,
    Predicted,
    PredictFiles,
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
from aliquot.storage.volumes.messages import PutVolume, RemoveVolume, VolumeReply
from aliquot.storage.volumes.records import VolumeSpec

log = structlog.get_logger("aliquot.fabric")

LOST = "the storage agent ended"
_REMOVAL_TIMEOUT_S = 10.0  # for the deletion of a removed dataset's files


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
    """Sends requests and commands to the storage agent, and delivers its replies. Implements `AgentListener`."""

    def __init__(
        self,
        store: Store,
        settings: FabricSettings | None = None,
        agent_started: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Without settings there are datasets but no agent. Tests of other parts use that.

        `agent_started` is called with the pid of each agent.
        """
        self._settings = settings
        self._listener: FabricListener = _NoListener()
        self.datasets = DatasetRegistry(store, self._dataset_changed)
        self.figures: dict[str, float] = {}
        self._agent = StorageAgentProcess(self, agent_started, enabled=settings is not None)
        self._requests = AgentRequests()
        self._removals: dict[str, asyncio.Future[None]] = {}  # by dataset: the running deletion of its files
        self._failure = ""  # the error that the last agent reported before it ended
        self._predicting: dict[tuple[str, str], None] = {}  # tenant and session of each running prediction
        self._fetches: dict[int, None] = {}
        self.readers = DatasetReaders(
            self._agent.send,
            self._agent.descriptors,
            self.datasets.is_shown,
            view_lost=self._view_lost,
            user_of=self._user_of,
        )
        self.volumes = VolumeRegistry(store, self._volume_changed)
        self.volume_mounts = VolumeMounts(self._agent.descriptors, self.volumes, self._view_lost)
        self.volume_files = VolumeFilesClient(self._ask)
        self._deleting: set[asyncio.Task[None]] = set()

    @property
    def learning(self) -> LearnSettings:
        """Return the operator's settings for learning."""
        return LearnSettings() if self._settings is None else self._settings.learning

    # --- start and stop -----------------------------------------------------------------------------------

    async def start(self, listener: FabricListener) -> None:
        """Read the datasets, and start the agent if there are any."""
        self._listener = listener
        await self.datasets.load()
        await self.volumes.load()
        if self.datasets.all() or self.volumes.everywhere():
            self._agent.start()

    def _view_lost(self, sandbox: int) -> None:
        self._listener.view_lost(sandbox)

    def _user_of(self, tenant: str, session: str) -> str:
        return self._listener.user_of(tenant, session)

    async def stop(self) -> None:
        """Stop the agent and close all views."""
        await self._agent.stop()
        self.readers.stop()
        self.volume_mounts.stop()

    # --- requests of operators and users ------------------------------------------------------------------

    async def check(self, dataset: Dataset) -> AgentReply:
        """Open and list the dataset's origin. Raises `AgentError` with the origin's error."""
        value: AgentReply = await self._ask(lambda number: CheckDataset(number, dataset))
        return value

    async def show(self, name: str) -> AgentReply:
        """Return the numbers of files and bytes at the origin and in the node's cache. Raises `AgentError`."""
        value: AgentReply = await self._ask(lambda number: ShowDataset(number, name))
        return value

    async def evict(self, name: str) -> AgentReply:
        """Remove the dataset's files from the node's cache. Raises `AgentError`."""
        value: AgentReply = await self._ask(lambda number: EvictDataset(number, name))
        return value

    async def warm(
        self, name: str, patterns: tuple[str, ...], on_progress: Callable[[WarmProgress], None]
    ) -> AgentReply:
        """Fetch all files that match. It stops when the caller is cancelled. Raises `AgentError`."""
        number = self._begin(lambda number: WarmDataset(number, name, patterns), on_progress)
        try:
            value: AgentReply = await self._requests.answer(number)
        except asyncio.CancelledError:
            self._agent.send(StopWarming(number))
            raise
        return value

    async def models(self) -> ModelsState:
        """Return the state of the models. Raises `AgentError`, as the next three methods do."""
        return await self._ask_of_models(ShowModels)

    async def train_model(self) -> ModelsState:
        return await self._ask_of_models(TrainModel)

    async def use_model(self, version: int | None, predictor: str | None) -> ModelsState:
        return await self._ask_of_models(lambda number: UseModel(number, version, predictor))

    async def roll_back_model(self) -> ModelsState:
        return await self._ask_of_models(RollBackModel)

    async def _ask(self, make: Callable[[int], ToAgent]) -> Any:  # noqa: ANN401 - depends on the request
        return await self._requests.answer(self._begin(make))

    async def _ask_of_models(self, make: Callable[[int], ToAgent]) -> ModelsState:
        state: ModelsState = await self._requests.answer(self._begin(make))
        return state

    def _begin(
        self, make: Callable[[int], ToAgent], on_progress: Callable[[WarmProgress], None] = lambda _: None
    ) -> int:
        if self._settings is None:
            raise AgentError("no storage agent runs here")
        number = self._requests.add(on_progress)
        self._agent.send(make(number))
        return number

    def _dataset_changed(self, before: Dataset | None, after: Dataset | None) -> None:
        """Pass a change to the agent, the readers and the core.

        Sandboxes that may not see the dataset any more, or that would see another origin, are retired.
        """
        if before is not None:  # first, because the agent must not show the new dataset to sandboxes that lose the old
            self.readers.retire(before, after)
        if after is not None:
            self._agent.send(PutDataset(after))
        elif before is not None:
            self._removals[before.name] = asyncio.ensure_future(self._remove_from_node(before.name))
        if before is not None and (after is None or (before.url, before.options) != (after.url, after.options)):
            self._listener.post(DatasetRemoved(before.name))

    async def _remove_from_node(self, name: str) -> None:
        # A restarted agent does not know the dataset, and a slow one removes it later. Neither is waited for.
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(_REMOVAL_TIMEOUT_S):
                await self._ask(lambda number: RemoveDataset(number, name))

    async def wait_until_removed(self, name: str) -> None:
        """Wait until the files of a removed dataset are deleted, so that its name can be used again."""
        if (removal := self._removals.pop(name, None)) is not None:
            await asyncio.shield(removal)

    def _volume_changed(self, before: Volume | None, after: Volume | None) -> None:
        """Pass a change to the agent, and stop the sandboxes that have a deleted volume mounted."""
        if after is not None:
            self._agent.send(PutVolume(after.spec))
        elif before is not None:
            self.volume_mounts.retire(before)
            task = asyncio.ensure_future(self._delete_volume(before.id))
            self._deleting.add(task)
            task.add_done_callback(self._deleting.discard)

    async def _delete_volume(self, volume: str) -> None:
        with suppress(AgentError):  # the next agent deletes every folder that belongs to no volume
            await self._ask(lambda number: RemoveVolume(number, volume))

    # --- sessions and the core's commands -----------------------------------------------------------------

    def session_began(self, tenant: str, session: str) -> None:
        """Tell the core of a new session, if its tenant sees any datasets."""
        if self.datasets.shown_to(tenant):
            self._listener.post(SessionBegan(tenant, session))

    def session_ended(self, tenant: str, session: str) -> None:
        if self.datasets.all():
            self._agent.send(EndSession(tenant, session))

    def predict(self, command: Predict) -> None:
        if not self.datasets.shown_to(command.tenant):
            self._listener.post(FilesPredicted(command.tenant, command.session, "", ()))
            return
        self._predicting[command.tenant, command.session] = None
        user = self._listener.user_of(command.tenant, command.session)
        self._agent.send(PredictFiles(command.tenant, command.session, command.function, user))

    def fetch(self, command: Fetch) -> None:
        self._fetches[command.fetch] = None
        self._agent.send(
            StartPrefetch(command.fetch, command.tenant, command.session, command.dataset, command.path, command.reason)
        )

    def cancel(self, command: CancelFetch) -> None:
        if command.fetch in self._fetches:
            self._agent.send(CancelPrefetch(command.fetch))

    # --- AgentListener ------------------------------------------------------------------------------------

    def start_message(self) -> StartAgent:
        return StartAgent(self._settings or FabricSettings(), tuple(self.datasets.all()), self._volume_specs())

    def _volume_specs(self) -> tuple[VolumeSpec, ...]:
        return tuple(volume.spec for volume in self.volumes.everywhere())

    def message_received(self, message: FromAgent) -> None:
        match message:
            case Reply() | ModelsReply() | VolumeReply() | WarmProgress():
                self._requests.receive(message)
            case AgentFailed():
                log.error("the storage agent cannot work", error=message.error)
                self._failure = message.error
            case RunSettled():
                self.readers.settled(message)
            case AgentFigures():
                self.figures = message.values
            case Predicted():
                self._predicting.pop((message.tenant, message.session), None)
                files = tuple(LikelyFile(one.dataset, one.path, one.size, one.probability) for one in message.files)
                self._listener.post(FilesPredicted(message.tenant, message.session, message.model, files))
            case PrefetchEnded() if message.fetch in self._fetches:
                del self._fetches[message.fetch]
                self._listener.post(FetchEnded(message.fetch, message.seconds, message.error))

    def agent_lost(self) -> None:
        why, self._failure = self._failure or "try again", ""
        self._requests.fail(AgentLostError(f"{LOST}; {why}"))
        predicting, self._predicting = self._predicting, {}
        for tenant, session in predicting:
            self._listener.post(FilesPredicted(tenant, session, "", ()))
        fetches, self._fetches = self._fetches, {}
        for fetch in fetches:
            self._listener.post(FetchEnded(fetch, 0, LOST))
        self.figures = {}
        self.readers.agent_lost()
        self.volume_mounts.agent_lost()
