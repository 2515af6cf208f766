"""What shall be done: all that leaves the core. Imperative, frozen, performed by a shell, written to its journal.

The shell performs the commands of one device in order: a `StartSandbox` or `LoadMemory` begins only when the
`UnloadMemory` and `StopSandbox` before it are done, for they make its room. A command about a sandbox that was lost in
the same step has nothing left to act on, and the shell passes over it.
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from aliquot.core.places import Place


class Start(StrEnum):
    """What an invocation found when it was dispatched."""

    COLD = "cold"  # a sandbox had to be started
    SWAP_IN = "swap_in"  # a sandbox was there, its bytes had to be brought back
    WARM = "warm"  # ready to run at once


class Dispatch(Struct, frozen=True, tag=True, gc=False):
    """The invocation has its sandbox; `Run` follows as soon as that is ready. Its data may be fetched now."""

    invocation: str
    sandbox: int
    place: Place
    start: Start
    reason: str


class StartSandbox(Struct, frozen=True, tag=True, gc=False):
    """Start the process and load its bytes to its devices, both at once; then `SandboxStarted`."""

    sandbox: int
    tenant: str
    function: str
    place: Place
    invocation: str  # the call that it starts for; the sandbox may serve another if this one is cancelled


class LoadMemory(Struct, frozen=True, tag=True, gc=False):
    """Bring a swapped-out sandbox's bytes to its device; then `MemoryLoaded`."""

    sandbox: int


class UnloadMemory(Struct, frozen=True, tag=True, gc=False):
    """Move the sandbox's bytes from the device to the host."""

    sandbox: int


class StopSandbox(Struct, frozen=True, tag=True, gc=False):
    sandbox: int
    reason: str


class SetSlice(Struct, frozen=True, tag=True, gc=False):
    """From now on the sandbox is due `share` of its device's compute when others want it too, and at most `ceiling`.

    Of each of its devices, where it has several.
    """

    sandbox: int
    share: float
    ceiling: float


class Run(Struct, frozen=True, tag=True, gc=False):
    """Run it in the sandbox; then `RunFinished`."""

    invocation: str
    sandbox: int


class Complete(Struct, frozen=True, tag=True, gc=False):
    """The invocation has ended with what its run gave: answer, record. `Fail` and `Reject` are the other two ends."""

    invocation: str


class Fail(Struct, frozen=True, tag=True, gc=False):
    """The accepted invocation ends here, without a result."""

    invocation: str
    reason: str


class Reject(Struct, frozen=True, tag=True, gc=False):
    """The invocation is not taken."""

    invocation: str
    reason: str


class Predict(Struct, frozen=True, tag=True, gc=False):
    """Say which files the audience will open next; then `FilesPredicted`."""

    tenant: str
    session: str
    function: str  # that was called; empty: none yet
    reason: str


class Fetch(Struct, frozen=True, tag=True, gc=False):
    """Bring the file to the node before anyone asks; then `FetchEnded`. Whoever opens it meanwhile overtakes."""

    fetch: int
    tenant: str
    session: str
    dataset: str
    path: str
    reason: str


class CancelFetch(Struct, frozen=True, tag=True, gc=False):
    """It was a wrong guess, unless someone has opened it by now; then `FetchEnded`."""

    fetch: int
    reason: str


class WakeAt(Struct, frozen=True, tag=True, gc=False):
    """Send `Woke` at that moment; a later `WakeAt` replaces an earlier one."""

    at: float


Command: TypeAlias = (
    Dispatch
    | StartSandbox
    | LoadMemory
    | UnloadMemory
    | StopSandbox
    | SetSlice
    | Run
    | Complete
    | Fail
    | Reject
    | Predict
    | Fetch
    | CancelFetch
    | WakeAt
)
