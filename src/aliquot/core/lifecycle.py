"""The states of invocations and sandboxes, as two transition tables. Any other transition is an error.

                                ┌──── idle ────┐
start ─▶ STARTING ─ready─▶ WARM ─run─▶ BUSY ─finish─▶ WARM
                            │ ▲
                   swap_out │ │ ready
                            ▼ │
                    HOST_WARM ─load─▶ LOADING        any ─end─▶ GONE

QUEUED ─dispatch─▶ PREPARING ─run─▶ RUNNING ─end─▶ ENDED     (QUEUED and PREPARING may end early)
QUEUED ◀──return── PREPARING, RUNNING
"""

from enum import StrEnum


class SandboxState(StrEnum):
    STARTING = "starting"  # the process starts and its bytes are loaded to the device
    WARM = "warm"  # resident and ready
    BUSY = "busy"  # resident, and runs one invocation
    HOST_WARM = "host-warm"  # alive, but swapped out of device memory
    LOADING = "loading"  # its bytes are loaded to the device again
    GONE = "gone"


class SandboxChange(StrEnum):
    READY = "ready"
    RUN = "run"
    FINISH = "finish"
    SWAP_OUT = "swap_out"
    LOAD = "load"
    END = "end"


class InvocationState(StrEnum):
    QUEUED = "queued"
    PREPARING = "preparing"  # has a sandbox that is not ready yet
    RUNNING = "running"
    ENDED = "ended"


class InvocationChange(StrEnum):
    DISPATCH = "dispatch"
    RETURN = "return"  # to the queue, because its node was lost before it ran, or its batch failed
    RUN = "run"
    END = "end"


SANDBOX: dict[tuple[SandboxState, SandboxChange], SandboxState] = {
    (SandboxState.STARTING, SandboxChange.READY): SandboxState.WARM,
    (SandboxState.LOADING, SandboxChange.READY): SandboxState.WARM,
    (SandboxState.WARM, SandboxChange.RUN): SandboxState.BUSY,
    (SandboxState.BUSY, SandboxChange.FINISH): SandboxState.WARM,
    (SandboxState.WARM, SandboxChange.SWAP_OUT): SandboxState.HOST_WARM,
    (SandboxState.HOST_WARM, SandboxChange.LOAD): SandboxState.LOADING,
    (SandboxState.STARTING, SandboxChange.END): SandboxState.GONE,
    (SandboxState.LOADING, SandboxChange.END): SandboxState.GONE,
    (SandboxState.WARM, SandboxChange.END): SandboxState.GONE,
    (SandboxState.BUSY, SandboxChange.END): SandboxState.GONE,
    (SandboxState.HOST_WARM, SandboxChange.END): SandboxState.GONE,
}

INVOCATION: dict[tuple[InvocationState, InvocationChange], InvocationState] = {
    (InvocationState.QUEUED, InvocationChange.DISPATCH): InvocationState.PREPARING,
    (InvocationState.PREPARING, InvocationChange.RUN): InvocationState.RUNNING,
    (InvocationState.PREPARING, InvocationChange.RETURN): InvocationState.QUEUED,
    (InvocationState.RUNNING, InvocationChange.RETURN): InvocationState.QUEUED,
    (InvocationState.QUEUED, InvocationChange.END): InvocationState.ENDED,
    (InvocationState.PREPARING, InvocationChange.END): InvocationState.ENDED,
    (InvocationState.RUNNING, InvocationChange.END): InvocationState.ENDED,
}

# Module-level names for states and changes of every call: looking a member up in its enum costs as much as a call.
WARM, HOST_WARM, BUSY = SandboxState.WARM, SandboxState.HOST_WARM, SandboxState.BUSY
STARTING = SandboxState.STARTING
RUN_SANDBOX, FINISH = SandboxChange.RUN, SandboxChange.FINISH
QUEUED = InvocationState.QUEUED
DISPATCH, RUN, END = InvocationChange.DISPATCH, InvocationChange.RUN, InvocationChange.END

HOLDS_DEVICE_MEMORY = (SandboxState.WARM, SandboxState.BUSY, SandboxState.STARTING, SandboxState.LOADING)
