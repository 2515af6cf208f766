"""The messages between the server and the storage agent: tagged records in msgpack frames on a socket.

The agent is a separate process. It holds the cache, transfers files, serves the views and runs the model, so that none
of this delays a call that needs no files. The core decides about prefetches. The agent serves opens without asking it.
"""

from typing import TypeAlias

from msgspec import Struct

from aliquot.storage.models import ModelsState
from aliquot.storage.records import Dataset, Found, Likely
from aliquot.storage.settings import FabricSettings
from aliquot.storage.volumes.messages import MountVolumes, PutVolume, UnmountVolumes, VolumeReply, VolumeRequest
from aliquot.storage.volumes.records import VolumeSpec

# --- to the agent ---------------------------------------------------------------------------------------------


class StartAgent(Struct, frozen=True, tag=True):
    """The first message: the agent's settings, and all datasets and volumes."""

    settings: FabricSettings
    datasets: tuple[Dataset, ...]
    volumes: tuple[VolumeSpec, ...] = ()


class CheckDataset(Struct, frozen=True, tag=True):
    """Check that an origin can be opened and listed; nothing is kept. Answered by `Reply`."""

    request: int
    dataset: Dataset


class PutDataset(Struct, frozen=True, tag=True):
    """Add or replace a dataset."""

    dataset: Dataset


class RemoveDataset(Struct, frozen=True, tag=True):
    """Remove a dataset from all views and delete its cached files. Answered by `Reply`."""

    request: int
    name: str


class HideDataset(Struct, frozen=True, tag=True):
    """Hide a dataset from these sandboxes. They see no dataset of this name for the rest of their lives."""

    name: str
    sandboxes: tuple[int, ...]


class EvictDataset(Struct, frozen=True, tag=True):
    """Delete a dataset's cached files; the dataset stays. Answered by `Reply`."""

    request: int
    name: str


class ShowDataset(Struct, frozen=True, tag=True):
    """Report a dataset's files and bytes, and how much of both is cached. Answered by `Reply`."""

    request: int
    name: str


class WarmDataset(Struct, frozen=True, tag=True):
    """Cache every file that matches one of the patterns. Answered by `WarmProgress` messages, then `Reply`."""

    request: int
    name: str
    patterns: tuple[str, ...]


class StopWarming(Struct, frozen=True, tag=True):
    """Cancel a warming, because its client has disconnected."""

    request: int


class OpenView(Struct, frozen=True, tag=True):
    """Show these datasets to a sandbox. Sent on the view socket, with the descriptor of `/dev/fuse`."""

    sandbox: int
    datasets: tuple[str, ...]
    tenant: str = ""


class CloseView(Struct, frozen=True, tag=True):
    """Close a sandbox's view. Sent on the same socket, so that it arrives after `OpenView`."""

    sandbox: int


class BeginRun(Struct, frozen=True, tag=True):
    """Count the files opened through the sandbox's view for this invocation from now on.

    Earlier opens that belong to no run count for it, too: its code may open files while it is imported.
    """

    sandbox: int
    tenant: str
    function: str
    invocation: str
    session: str
    user: str = ""


class EndRun(Struct, frozen=True, tag=True):
    """End an invocation's run. Answered by `RunSettled`."""

    sandbox: int
    invocation: str


class EndSession(Struct, frozen=True, tag=True):
    tenant: str
    session: str


class PredictFiles(Struct, frozen=True, tag=True):
    """The core's command `Predict`. Answered by `Predicted`."""

    tenant: str
    session: str
    function: str
    user: str = ""  # the session's user


class StartPrefetch(Struct, frozen=True, tag=True):
    """The core's command `Fetch`. Answered by `PrefetchEnded`."""

    fetch: int
    tenant: str
    session: str
    dataset: str
    path: str
    reason: str  # the core's reason, for the record of the run that opens the file


class CancelPrefetch(Struct, frozen=True, tag=True):
    fetch: int


class ShowModels(Struct, frozen=True, tag=True):
    """Report all model versions, the serving one and the last training. Answered by `ModelsReply`."""

    request: int


class TrainModel(Struct, frozen=True, tag=True):
    """Start a training in a separate process. Answered by `ModelsReply` when it has started."""

    request: int


class UseModel(Struct, frozen=True, tag=True):
    """Choose the serving version, its predictor, or both; 0 or neither: the best. Answered by `ModelsReply`."""

    request: int
    version: int | None = None
    predictor: str | None = None


class RollBackModel(Struct, frozen=True, tag=True):
    """Serve the previous version again. Answered by `ModelsReply`."""

    request: int


ToAgent: TypeAlias = (
    StartAgent
    | CheckDataset
    | PutDataset
    | RemoveDataset
    | HideDataset
    | EvictDataset
    | ShowDataset
    | WarmDataset
    | StopWarming
    | BeginRun
    | EndRun
    | EndSession
    | PredictFiles
    | StartPrefetch
    | CancelPrefetch
    | ShowModels
    | TrainModel
    | UseModel
    | RollBackModel
    | PutVolume
    | VolumeRequest
)

ViewMessage: TypeAlias = OpenView | CloseView | MountVolumes | UnmountVolumes


# --- from the agent -------------------------------------------------------------------------------------------


class AgentFailed(Struct, frozen=True, tag=True):
    """The last message of an agent that cannot work, with the reason."""

    error: str


class Reply(Struct, frozen=True, tag=True):
    """The answer to a request. `error` is a text for people, empty on success."""

    request: int
    value: dict[str, int | float | str | None] = {}
    error: str = ""


class ModelsReply(Struct, frozen=True, tag=True):
    """The answer to a request about models. `error` is as in `Reply`."""

    request: int
    state: ModelsState | None = None
    error: str = ""


class WarmProgress(Struct, frozen=True, tag=True):
    request: int
    files: int
    of_files: int
    bytes: int
    of_bytes: int


class AgentFigures(Struct, frozen=True, tag=True):
    """Counters for people, sent when they have changed, at most twice a second."""

    values: dict[str, float]


class Predicted(Struct, frozen=True, tag=True):
    """The likely files that are not cached yet, most likely first."""

    tenant: str
    session: str
    model: str
    files: tuple[Likely, ...]


class PrefetchEnded(Struct, frozen=True, tag=True):
    fetch: int
    seconds: float
    error: str = ""


class RunSettled(Struct, frozen=True, tag=True):
    """An invocation's use of the storage fabric, for its record."""

    invocation: str
    data_s: float  # total time waited for files
    opened: dict[Found, int]  # number of opens, by the file's state
    prefetched_bytes: int  # of opened files that had been prefetched
    wasted_bytes: int  # prefetched for it and not opened
    error: str = ""  # why the first failed open failed
    reasons: tuple[str, ...] = ()  # why the first prefetched files were prefetched


FromAgent: TypeAlias = (
    AgentFailed
    | Reply
    | ModelsReply
    | VolumeReply
    | WarmProgress
    | AgentFigures
    | Predicted
    | PrefetchEnded
    | RunSettled
)
