"""What happened: the only way anything enters the core. Past tense, frozen, written to the journal as they are.

Sandboxes are numbered by the core, invocations and devices named by the shell. An event about a sandbox that the
core has given up in the meantime is late, not wrong, and is passed over.
"""

from typing import TypeAlias

from msgspec import Struct

from aliquot.core.model import DeviceSpec, FunctionSpec


class DeviceAdded(Struct, frozen=True, tag=True):
    device: DeviceSpec


class DeviceLost(Struct, frozen=True, tag=True):
    """The device is gone with everything on it."""

    device: str


class UtilisationMeasured(Struct, frozen=True, tag=True):
    """How busy a device's compute really was, 0 to 1, as its driver reports it."""

    device: str
    utilisation: float


class HostMemorySet(Struct, frozen=True, tag=True):
    """How many bytes of the host all sandboxes together may claim; idle ones are stopped to keep within it.

    What runs is bounded by the devices' slots, not by this. Comes before any sandbox.
    """

    memory_bytes: int


class TenantWeightSet(Struct, frozen=True, tag=True):
    """The operator's word; tenants cannot send it."""

    tenant: str
    weight: float


class FunctionDeployed(Struct, frozen=True, tag=True):
    """A new function, or a new version: sandboxes of the old one are never used again."""

    tenant: str
    function: FunctionSpec


class FunctionRemoved(Struct, frozen=True, tag=True):
    tenant: str
    function: str


class InvocationArrived(Struct, frozen=True, tag=True, gc=False):
    invocation: str
    tenant: str
    function: str
    deadline_s: float | None = None  # after arrival
    cost_limit: float | None = None
    session: str | None = None  # of the tenant; it lives from `SessionBegan`, or else the first arrival that names it


class InvocationCancelled(Struct, frozen=True, tag=True, gc=False):
    invocation: str
    reason: str = "cancelled"


class SandboxStarted(Struct, frozen=True, tag=True, gc=False):
    """It runs and its bytes are on the device."""

    sandbox: int


class MemoryLoaded(Struct, frozen=True, tag=True, gc=False):
    """A swapped-out sandbox has its bytes on the device again."""

    sandbox: int


class SandboxLost(Struct, frozen=True, tag=True, gc=False):
    """It crashed, was killed, or never came up."""

    sandbox: int
    reason: str


class RunFinished(Struct, frozen=True, tag=True, gc=False):
    """The invocation has its result, good or bad; the sandbox is fit for another."""

    invocation: str
    sandbox: int
    run_s: float  # on the device, as measured


class SessionEnded(Struct, frozen=True, tag=True, gc=False):
    """Nobody will name the session again: what it holds is as anything else that is idle."""

    tenant: str
    session: str


class SessionBegan(Struct, frozen=True, tag=True, gc=False):
    """A user is here: calls will follow, and the files that they read can be brought before they come."""

    tenant: str
    session: str


class LikelyFile(Struct, frozen=True, gc=False):
    """A file of a dataset that is not on the node yet and will probably be opened."""

    dataset: str
    path: str
    size: int
    probability: float


class FilesPredicted(Struct, frozen=True, tag=True, gc=False):
    """The answer to `Predict`, or what the model says after further files were opened: most likely first.

    It takes the place of what was predicted for the same audience before.
    """

    tenant: str
    session: str  # the audience: a session, or `function/NAME` where there is none
    model: str
    files: tuple[LikelyFile, ...]


class FetchEnded(Struct, frozen=True, tag=True, gc=False):
    """A prefetch is over: the file is here, or it was cancelled, or `error` says what went wrong."""

    fetch: int
    seconds: float
    error: str = ""


class DatasetRemoved(Struct, frozen=True, tag=True, gc=False):
    """The operator took it away, or put another origin in its place: what was known of its files holds no longer."""

    dataset: str


class Woke(Struct, frozen=True, tag=True, gc=False):
    """The moment asked for by `WakeAt` has come."""


Event: TypeAlias = (
    DeviceAdded
    | DeviceLost
    | UtilisationMeasured
    | HostMemorySet
    | TenantWeightSet
    | FunctionDeployed
    | FunctionRemoved
    | InvocationArrived
    | InvocationCancelled
    | SandboxStarted
    | MemoryLoaded
    | SandboxLost
    | RunFinished
    | SessionBegan
    | SessionEnded
    | FilesPredicted
    | FetchEnded
    | DatasetRemoved
    | Woke
)
