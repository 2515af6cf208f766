"""What the server and the storage agent say to each other: msgpack frames on a socket, each a tagged record.

The agent is a process of its own: it holds the cache, moves the bytes, answers the views' opens and runs the model, so
that none of it holds up a call that needs no files. It decides nothing but what cannot wait: an open is served at once.
"""

from typing import TypeAlias

from msgspec import Struct

from aliquot.storage.models import ModelsState
from aliquot.storage.records import Dataset, Found, Likely
from aliquot.storage.settings import FabricSettings

# --- to the agent ---------------------------------------------------------------------------------------------


class StartAgent(Struct, frozen=True, tag=True):
    """The first that is said: how the agent is to work, and all datasets that there are."""

    settings: FabricSettings
    datasets: tuple[Dataset, ...]


class CheckDataset(Struct, frozen=True, tag=True):
    """Whether its origin opens and lists; nothing is kept. Then `Reply`."""

    request: int
    dataset: Dataset


class PutDataset(Struct, frozen=True, tag=True):
    """It is there, or has changed."""

    dataset: Dataset


class RemoveDataset(Struct, frozen=True, tag=True):
    """No view shows it any more, and its files leave the cache. Then `Reply`."""

    request: int
    name: str


class HideDataset(Struct, frozen=True, tag=True):
    """It was taken from those in these sandboxes: for as long as they live, no dataset of that name is theirs."""

    name: str
    sandboxes: tuple[int, ...]


class EvictDataset(Struct, frozen=True, tag=True):
    """Its files leave the cache; the dataset stays. Then `Reply`."""

    request: int
    name: str


class ShowDataset(Struct, frozen=True, tag=True):
    """What is known of it: files, bytes, how much of both is here. Then `Reply`."""

    request: int
    name: str


class WarmDataset(Struct, frozen=True, tag=True):
    """Bring every file that matches one of the patterns; `WarmProgress` as it goes, then `Reply`."""

    request: int
    name: str
    patterns: tuple[str, ...]


class StopWarming(Struct, frozen=True, tag=True):
    """Whoever asked has gone."""

    request: int


class OpenView(Struct, frozen=True, tag=True):
    """A sandbox is to see these datasets. It comes by a socket of its own, with the sandbox's end of FUSE."""

    sandbox: int
    datasets: tuple[str, ...]


class CloseView(Struct, frozen=True, tag=True):
    """By the same socket, so that it comes after `OpenView`."""

    sandbox: int


class BeginRun(Struct, frozen=True, tag=True):
    """What is opened through the sandbox's view from now on is opened by this invocation.

    What was opened before, while its code was imported or because this came a moment late, is opened by it too.
    """

    sandbox: int
    tenant: str
    function: str
    invocation: str
    session: str
    user: str = ""


class EndRun(Struct, frozen=True, tag=True):
    """The invocation has its result. Then `RunSettled`."""

    sandbox: int
    invocation: str


class EndSession(Struct, frozen=True, tag=True):
    tenant: str
    session: str


class AskModel(Struct, frozen=True, tag=True):
    """The core's `Predict`. Then `Predicted`."""

    tenant: str
    session: str
    function: str
    user: str = ""  # of the session


class StartPrefetch(Struct, frozen=True, tag=True):
    """The core's `Fetch`. Then `PrefetchEnded`."""

    fetch: int
    tenant: str
    session: str
    dataset: str
    path: str
    reason: str  # the core's, for the record of whoever opens it


class CancelPrefetch(Struct, frozen=True, tag=True):
    fetch: int


class ShowModels(Struct, frozen=True, tag=True):
    """Which versions there are, which serves, and where a training stands. Then `ModelsReply`."""

    request: int


class TrainModel(Struct, frozen=True, tag=True):
    """Begin a training from the access log, in a process of its own. Then `ModelsReply`, when it has begun."""

    request: int


class UseModel(Struct, frozen=True, tag=True):
    """Have this version serve, or this of its predictors, or both; 0, or neither: the best. Then `ModelsReply`."""

    request: int
    version: int | None = None
    predictor: str | None = None


class RollBackModel(Struct, frozen=True, tag=True):
    """Have the version serve that did before. Then `ModelsReply`."""

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
    | AskModel
    | StartPrefetch
    | CancelPrefetch
    | ShowModels
    | TrainModel
    | UseModel
    | RollBackModel
)

ViewMessage: TypeAlias = OpenView | CloseView


# --- from the agent -------------------------------------------------------------------------------------------


class AgentFailed(Struct, frozen=True, tag=True):
    """The last that it says: why it cannot work."""

    error: str


class Reply(Struct, frozen=True, tag=True):
    """`error` is for people: empty when all went well; otherwise the value is nothing."""

    request: int
    value: dict[str, int | float | str | None] = {}
    error: str = ""


class ModelsReply(Struct, frozen=True, tag=True):
    """`error` as in `Reply`."""

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
    """For people who watch; told when something has changed, a few times a second at most."""

    values: dict[str, float]


class Predicted(Struct, frozen=True, tag=True):
    """Of files that are not here yet; most likely first."""

    tenant: str
    session: str
    model: str
    files: tuple[Likely, ...]


class PrefetchEnded(Struct, frozen=True, tag=True):
    fetch: int
    seconds: float
    error: str = ""


class RunSettled(Struct, frozen=True, tag=True):
    """What an invocation had of the fabric, for its record."""

    invocation: str
    data_s: float  # that it waited for files, all together
    opened: dict[Found, int]  # how many files, by what the open found
    prefetched_bytes: int  # that were here, or on their way, because they were predicted
    wasted_bytes: int  # that were brought for it and that it did not open
    error: str = ""  # why a file could not be opened, if one could not
    reasons: tuple[str, ...] = ()  # why the first of the files that it found prefetched were brought


FromAgent: TypeAlias = (
    AgentFailed | Reply | ModelsReply | WarmProgress | AgentFigures | Predicted | PrefetchEnded | RunSettled
)
