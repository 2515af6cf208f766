"""Events: the only input of the core. They are frozen, named in the past tense, and written to the journal.

The core numbers sandboxes, and the shell names invocations and devices. An event about a sandbox that the core has
given up in the meantime is late but not wrong, and is ignored.
"""

from typing import TypeAlias

from msgspec import Struct

from aliquot.core.admission.records import Late, Prefer, SavedTimes
from aliquot.core.model import DeviceSpec, FunctionSpec, GraphSpec, NodeSpec
from aliquot.core.places import Place


class DeviceAdded(Struct, frozen=True, tag=True):
    device: DeviceSpec


class DeviceLost(Struct, frozen=True, tag=True):
    """A device was lost with everything on it."""

    device: str


class NodeJoined(Struct, frozen=True, tag=True):
    """A node is there, with its devices."""

    spec: NodeSpec
    devices: tuple[DeviceSpec, ...]


class NodeSuspected(Struct, frozen=True, tag=True):
    """The node has been silent for a while. It gets no new work, and what runs there may still end."""

    node: str


class NodeBack(Struct, frozen=True, tag=True):
    """The node was suspected or drained, and may get work again."""

    node: str


class NodeDraining(Struct, frozen=True, tag=True):
    """The operator takes the node out of service. It gets no new work, and idle sandboxes there are stopped."""

    node: str
    until: float | None = None  # the time at which calls that still run there end


class NodeLost(Struct, frozen=True, tag=True):
    """A node was lost with everything on it. Calls that did not run there yet are dispatched elsewhere."""

    node: str
    reason: str = ""


class DatasetHeld(Struct, frozen=True, tag=True, gc=False):
    """The bytes of a dataset that are on the node."""

    node: str
    dataset: str
    bytes: int


class SandboxAdopted(Struct, frozen=True, tag=True, gc=False):
    """A sandbox that another scheduler has started is on this one's devices, idle and warm, or with a running call."""

    sandbox: int
    tenant: str
    function: str
    place: Place
    invocation: str | None = None  # the call that runs in it
    session: str | None = None  # of that call, or the session that it served last


class UtilisationMeasured(Struct, frozen=True, tag=True):
    """The utilisation of a device's compute, 0 to 1, as its driver measured it."""

    device: str
    utilisation: float


class HostMemorySet(Struct, frozen=True, tag=True):
    """The host memory that all sandboxes of a node together may claim. Idle ones are stopped to stay within it.

    It must be sent before the first sandbox starts there.
    """

    memory_bytes: int
    node: str = ""


class TenantWeightSet(Struct, frozen=True, tag=True):
    """The operator set a tenant's weight."""

    tenant: str
    weight: float


class FunctionDeployed(Struct, frozen=True, tag=True):
    """A function is new or has a new version. Sandboxes of an old version are not used again."""

    tenant: str
    function: FunctionSpec


class FunctionRemoved(Struct, frozen=True, tag=True):
    tenant: str
    function: str


class InvocationArrived(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    invocation: str
    tenant: str
    function: str
    deadline_s: float | None = None  # counted from the arrival
    cost_limit: float | None = None
    session: str | None = None  # its name; the session begins with `SessionBegan` or the first arrival that names it
    late: Late = Late.RUN  # what follows if its promise is broken
    prefer: Prefer = Prefer.COST
    execution: str | None = None  # the execution of a workflow that it belongs to
    stage: str | None = None  # of that execution
    own_sandbox: bool = False  # it is not handed to a busy sandbox ahead, nor others behind it


class GraphDeployed(Struct, frozen=True, tag=True):
    """A graph of functions is new or has a new version. Its functions are deployed."""

    tenant: str
    graph: GraphSpec


class GraphRemoved(Struct, frozen=True, tag=True):
    tenant: str
    graph: str


class ExecutionArrived(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A whole graph is to be executed within its limits. Its calls follow, each when its inputs are there."""

    execution: str
    tenant: str
    graph: str
    deadline_s: float | None = None  # counted from the arrival
    cost_limit: float | None = None
    late: Late = Late.RUN
    prefer: Prefer = Prefer.COST


class StageSkipped(Struct, frozen=True, tag=True, gc=False):
    """A stage of the execution will not run."""

    execution: str
    stage: str


class ExecutionEnded(Struct, frozen=True, tag=True, gc=False):
    """No further call of the execution will arrive."""

    execution: str


class EstimatesRestored(Struct, frozen=True, tag=True, gc=False):
    """The times of a function's runs and starts from before a restart of the server."""

    tenant: str
    function: str
    times: tuple[SavedTimes, ...]


class InvocationCancelled(Struct, frozen=True, tag=True, gc=False):
    invocation: str
    reason: str = "cancelled"


class SandboxStarted(Struct, frozen=True, tag=True, gc=False):
    """The sandbox is running, and its bytes are on the device."""

    sandbox: int


class MemoryLoaded(Struct, frozen=True, tag=True, gc=False):
    """A swapped-out sandbox has its bytes on the device again."""

    sandbox: int


class SandboxLost(Struct, frozen=True, tag=True, gc=False):
    """The sandbox crashed, was killed, or failed to start."""

    sandbox: int
    reason: str
    again: tuple[str, ...] = ()  # members of its batch that may run again, alone
    out_of_memory: bool = False


class RunFinished(Struct, frozen=True, tag=True, gc=False):
    """The invocation has a result, good or bad, and its sandbox can take another.

    For a batch it tells about all members, under the name that the run had in `Run`.
    """

    invocation: str
    sandbox: int
    run_s: float  # measured on the device
    inside_s: float = 0  # measured inside the sandbox, which may not be true; 0 if it is not known
    again: tuple[str, ...] = ()  # members of a failed batch that may run again, alone
    out_of_memory: bool = False  # the batch was too large for the memory of its sandbox or device


class RunsTakenBack(Struct, frozen=True, tag=True, gc=False):
    """Invocations handed ahead to the sandbox have not begun there, and never will."""

    sandbox: int
    invocations: tuple[str, ...]


class SessionEnded(Struct, frozen=True, tag=True, gc=False):
    """No call will name the session again, so no sandbox is kept for it any more."""

    tenant: str
    session: str


class SessionBegan(Struct, frozen=True, tag=True, gc=False):
    """A user began a session. Calls will follow, and the files they read can be fetched in advance."""

    tenant: str
    session: str


class LikelyFile(Struct, frozen=True, gc=False):
    """A file of a dataset that will probably be opened and is not on the node yet."""

    dataset: str
    path: str
    size: int
    probability: float


class FilesPredicted(Struct, frozen=True, tag=True, gc=False):
    """The answer to `Predict`, or a newer prediction after further files were opened, most likely file first.

    It replaces the previous prediction for the same audience.
    """

    tenant: str
    session: str  # the audience: a session, or `function/NAME` for calls without one
    model: str
    files: tuple[LikelyFile, ...]


class FetchEnded(Struct, frozen=True, tag=True, gc=False):
    """A prefetch ended: the file is there, or it was cancelled, or `error` says what went wrong."""

    fetch: int
    seconds: float
    error: str = ""


class DatasetRemoved(Struct, frozen=True, tag=True, gc=False):
    """The operator removed a dataset or gave it another origin, so nothing known about its files holds any more."""

    dataset: str


class DemandRow(Struct, frozen=True, gc=False):
    """The demand that is forecast for one function."""

    tenant: str
    function: str
    chance: float  # of a call in the window
    window_s: float
    low: float  # calls at once in the window: the 5 % quantile
    middle: float
    high: float  # 95 %
    measured: float  # calls at once lately
    model: str = ""  # that says so
    ends_s: float = 0  # seconds until the window ends
    later: tuple[float, ...] = ()  # the chance in each of the windows that follow


class DemandForecast(Struct, frozen=True, tag=True):
    """A forecast of demand for functions for which it has changed. It holds for `valid_s`."""

    rows: tuple[DemandRow, ...]
    valid_s: float


class CallExpected(Struct, frozen=True, tag=True, gc=False):
    """A call of the function is known to come: by an alarm, a sequence, a workflow or a session."""

    tenant: str
    function: str
    at: float
    source: str  # for people to read, such as `alarm every-minute`


class MoveAsked(Struct, frozen=True, tag=True, gc=False):
    """The operator asked to move a sandbox to another device."""

    sandbox: int
    to: str


class SandboxMoved(Struct, frozen=True, tag=True, gc=False):
    """The sandbox of this move is on the other device now."""

    move: int


class MoveFailed(Struct, frozen=True, tag=True, gc=False):
    """The sandbox of this move stays where it was."""

    move: int
    reason: str


class Woke(Struct, frozen=True, tag=True, gc=False):
    """The time requested by `WakeAt` has come."""


Event: TypeAlias = (
    DeviceAdded
    | DeviceLost
    | NodeJoined
    | NodeSuspected
    | NodeBack
    | NodeDraining
    | NodeLost
    | DatasetHeld
    | SandboxAdopted
    | UtilisationMeasured
    | HostMemorySet
    | TenantWeightSet
    | FunctionDeployed
    | FunctionRemoved
    | GraphDeployed
    | GraphRemoved
    | ExecutionArrived
    | StageSkipped
    | ExecutionEnded
    | InvocationArrived
    | InvocationCancelled
    | EstimatesRestored
    | SandboxStarted
    | MemoryLoaded
    | SandboxLost
    | RunFinished
    | RunsTakenBack
    | SessionBegan
    | SessionEnded
    | FilesPredicted
    | FetchEnded
    | DatasetRemoved
    | DemandForecast
    | CallExpected
    | MoveAsked
    | SandboxMoved
    | MoveFailed
    | Woke
)
