"""Commands: the only output of the core. They are frozen, named in the imperative, and written to the journal.

The shell performs the commands of one device in order. A `StartSandbox` or `LoadMemory` begins only when the
`UnloadMemory` and `StopSandbox` commands before it are done, because they free its memory. The shell ignores a command
about a sandbox that was lost in the same step.
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from aliquot.core.admission.records import Blame, Refusal
from aliquot.core.places import Place


class Start(StrEnum):
    """The kind of start that an invocation had when it was dispatched."""

    COLD = "cold"  # a sandbox had to be started
    SWAP_IN = "swap_in"  # the bytes of an idle sandbox had to be loaded again
    WARM = "warm"  # a sandbox was ready to run at once


class Purpose(StrEnum):
    """The reason for which a sandbox is started."""

    CALL = "call"  # a call was dispatched to it
    PLAN = "plan"  # calls are planned to run in it
    HOLD = "hold"  # an operator or a forecast wants it ready


class Dispatch(Struct, frozen=True, tag=True, gc=False):
    """Assign the invocation to a sandbox. `Run` follows as soon as the sandbox is ready."""

    invocation: str
    sandbox: int
    place: Place
    start: Start
    reason: str


class StartSandbox(Struct, frozen=True, tag=True, gc=False):
    """Start a process and load its bytes to its devices at the same time. Answered by `SandboxStarted`."""

    sandbox: int
    tenant: str
    function: str
    place: Place
    invocation: str  # the call that it starts for; the sandbox may serve another if this one is cancelled
    purpose: Purpose = Purpose.CALL
    reason: str = ""


class LoadMemory(Struct, frozen=True, tag=True, gc=False):
    """Load a swapped-out sandbox's bytes to its devices. Answered by `MemoryLoaded`."""

    sandbox: int
    reason: str = ""


class UnloadMemory(Struct, frozen=True, tag=True, gc=False):
    """Move the sandbox's bytes from its devices to the host."""

    sandbox: int
    reason: str = ""
    room_for: str | None = None  # the invocation that needs the memory


class StopSandbox(Struct, frozen=True, tag=True, gc=False):
    sandbox: int
    reason: str
    room_for: str | None = None  # the invocation that needs its slot or memory


class SetSlice(Struct, frozen=True, tag=True, gc=False):
    """Set the sandbox's part of each of its devices: `share` while others want compute, too, and at most `ceiling`."""

    sandbox: int
    share: float
    ceiling: float
    reason: str = ""


class Run(Struct, frozen=True, tag=True, gc=False):
    """Run the invocation in its sandbox, as a batch with its riders. Answered by `RunFinished`."""

    invocation: str
    sandbox: int
    riders: tuple[str, ...] = ()  # invocations of the same flow that run together with it


class RunNext(Struct, frozen=True, tag=True, gc=False):
    """Run the invocation in a busy sandbox after those that it has. Answered by `RunFinished` or `RunsTakenBack`."""

    invocation: str
    sandbox: int


class TakeBack(Struct, frozen=True, tag=True, gc=False):
    """Take back the invocations handed ahead to a sandbox that have not begun. Answered by `RunsTakenBack`."""

    sandbox: int


class Complete(Struct, frozen=True, tag=True, gc=False):
    """End the invocation with the result of its run. `Fail` and `Reject` are the other two ends."""

    invocation: str


class Fail(Struct, frozen=True, tag=True, gc=False):
    """End an accepted invocation without a result."""

    invocation: str
    reason: str


class Reject(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Refuse the invocation. With a refusal, other limits or a later time would do."""

    invocation: str
    reason: str
    refusal: Refusal | None = None


class Promise(Struct, frozen=True, tag=True, gc=False):
    """Promise that the invocation ends in time and costs no more than its limits."""

    invocation: str
    due: float | None  # the end of its limit; None if it has only a cost limit
    ends: float  # the end by the plan, at the latest
    cost: float  # at the most
    kinds: tuple[str, ...]  # kinds of devices that it is planned on
    reason: str


class BreakPromise(Struct, frozen=True, tag=True, gc=False):
    """Record that the promise cannot be kept. The invocation goes on as a plain one, or `Fail` follows."""

    invocation: str
    blame: Blame
    reason: str


class Predict(Struct, frozen=True, tag=True, gc=False):
    """Predict which files the audience will open next. Answered by `FilesPredicted`."""

    tenant: str
    session: str
    function: str  # called last; empty when none has been called
    reason: str
    node: str = ""  # where the files will be read


class Fetch(Struct, frozen=True, tag=True, gc=False):
    """Fetch the file to the node before it is opened. Answered by `FetchEnded`."""

    fetch: int
    tenant: str
    session: str
    dataset: str
    path: str
    reason: str
    node: str = ""


class CancelFetch(Struct, frozen=True, tag=True, gc=False):
    """Cancel a fetch that is no longer expected to be useful, unless the file has been opened. `FetchEnded` follows."""

    fetch: int
    reason: str
    node: str = ""


class Move(Struct, frozen=True, tag=True, gc=False):
    """Move a live sandbox to another device, even while it runs. Answered by `SandboxMoved` or `MoveFailed`."""

    move: int
    sandbox: int
    to: Place
    reason: str


class WantDevices(Struct, frozen=True, tag=True, gc=False):
    """Tell whatever scales the cluster how many devices of a kind the demand that is foreseen takes."""

    kind: str
    count: int
    by_s: float  # seconds within which they are wanted
    reason: str


class WakeAt(Struct, frozen=True, tag=True, gc=False):
    """Send `Woke` at that time. A later `WakeAt` replaces an earlier one."""

    at: float


Command: TypeAlias = (
    Dispatch
    | StartSandbox
    | LoadMemory
    | UnloadMemory
    | StopSandbox
    | SetSlice
    | Run
    | RunNext
    | TakeBack
    | Complete
    | Fail
    | Reject
    | Promise
    | BreakPromise
    | Predict
    | Fetch
    | CancelFetch
    | Move
    | WantDevices
    | WakeAt
)
