"""The node's interface: the service tells it what the core commands, and it tells a listener what came of it.

The service numbers the sandboxes as the core does. Everything here is called on the event loop and returns at once;
outcomes come through the listener, also on the event loop, and never from within the call that caused them.
"""

from enum import IntEnum
from typing import Protocol

from msgspec import Raw, Struct

from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.places import Place
from aliquot.live.device.records import DeviceUsage


class Status(IntEnum):
    """How an invocation ended; the numbers are OpenWhisk's `statusCode`."""

    SUCCESS = 0
    APPLICATION_ERROR = 1  # the function says so: its result has `error`
    DEVELOPER_ERROR = 2  # the function did not answer as it must: crashed, ran out of time or memory, does not compile
    INTERNAL_ERROR = 3  # the platform's own fault


class BufferHandle(Protocol):
    """Shared memory with the large buffers of a pickled value (`node.shared_buffers`)."""

    @property
    def fd(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_kept(self) -> int:
        """How large one may be that is put on disk."""
        ...

    def inlined(self, body: bytes | memoryview) -> bytes | memoryview:
        """The pickle's envelope with what is in here behind it."""
        ...


class Member(Struct, frozen=True):
    """One function of a group, at one revision."""

    name: str  # `name` or `package/name`
    code: str
    binary: bool
    main: str
    env: dict[str, str]
    sdk: bool


class Launch(Struct, frozen=True):
    """All that a sandbox needs to become ready for a function, or for those of a group, of one tenant.

    Of a group the code and its environment are the members'; it starts with the one whose name is `main`.
    """

    tenant: str
    function: str  # `name` or `package/name`
    revision: str
    version: str
    kind: str  # python:3.11 or nodejs:20
    code: str  # plain text, or base64 of a zip when `binary`
    binary: bool
    main: str  # the entry point's name
    env: dict[str, str]  # set before the code is imported: init parameters and __OW_*
    timeout_ms: int
    memory_bytes: int  # of the host: the limit
    logs_bytes: int
    imports: tuple[str, ...] = ()  # loaded by the zygote
    requirements: tuple[str, ...] = ()  # installed into an environment of their own
    place: Place = (CPU,)
    share: float = 0  # of them, guaranteed
    device_bytes: int = 0  # of each device's memory: the limit
    sdk: bool = False  # the code is a module of `aliquot.App` functions and `main` one of them
    datasets: tuple[str, ...] = ()  # that it sees as directories
    members: tuple[Member, ...] = ()  # of a group


class OutputListener(Protocol):
    """Who is told of each line that a run prints, as soon as the node has read it."""

    def printed(self, line: str) -> None: ...


class NestedRun(Struct, frozen=True):
    """One function's run inside another's, or after it in a chain: its activation."""

    invocation: str
    env: dict[str, str]  # __OW_* of this activation
    timeout_ms: int
    logs_bytes: int
    listener: OutputListener | None = None


class ChainStep(Struct, frozen=True):
    """What a group's sandbox is to run: a function, and what it gets beneath what the one before returned."""

    function: str
    defaults: dict[str, Raw] = {}


class RunRequest(Struct, frozen=True, gc=False):
    """One run. The payload is what the function gets: a JSON object, or the SDK's pickled arguments."""

    invocation: str
    payload: bytes | memoryview
    pickled: bool
    env: dict[str, str]  # __OW_* of this activation
    timeout_ms: int
    logs_bytes: int
    listener: OutputListener | None = None
    steps: tuple[ChainStep, ...] = ()  # of a group: what runs, one on what the other returned
    shared_buffer: BufferHandle | None = None  # with the large buffers of pickled arguments
    share: bool = False  # a pickled result may come in a shared buffer
    handed: bool = False  # the payload is a pickle of what the function before it in a sequence returned
    hand_on: bool = False  # the one after it takes a pickle: the result need not be JSON
    defaults: dict[str, Raw] = {}  # beneath what was handed


class Outcome(Struct, frozen=True, gc=False):
    """What came of a run, or of a start that failed."""

    status: Status
    result: bytes | memoryview  # JSON, a view when it is large; for an error an object with `error`
    run_s: float  # from the frame to the sandbox to its answer
    logs: tuple[str, ...] = ()  # formatted lines, both streams
    pickled: bytes | memoryview | None = None  # the SDK's result; `result` then says so in JSON
    timed_out: bool = False
    shared_buffer: BufferHandle | None = None  # with the large buffers of the pickled result
    outer: tuple[tuple[str, ...], ...] = ()  # the lines of those that had called it in its sandbox, innermost first


class NodeListener(Protocol):
    """Who is told. The service."""

    def sandbox_started(self, sandbox: int, init_s: float, logs: tuple[str, ...]) -> None:
        """It is initialised and waits for its first run; the logs are the import's."""
        ...

    def sandbox_lost(self, sandbox: int, outcome: Outcome) -> None:
        """It is gone, or is being killed, and will not be spoken of again.

        The outcome is that of the run it had, or of its start; a sandbox that dies idle has one too.
        """
        ...

    def sandbox_refused(self, sandbox: int) -> None:
        """It is shutting down and has not begun the run it was given: that may run elsewhere. It is gone."""
        ...

    def memory_loaded(self, sandbox: int) -> None: ...

    def device_lost(self, device: str, why: str) -> None:
        """Nothing runs there any more; its sandboxes have been told of before."""
        ...

    def run_finished(self, sandbox: int, outcome: Outcome) -> None:
        """The sandbox is fit for another run."""
        ...

    def began_inside(self, sandbox: int, function: str) -> NestedRun | str:
        """A function that runs calls another of its group, in its own process: its activation, or why not."""
        ...

    def ended_inside(self, sandbox: int, outcome: Outcome) -> NestedRun | None:
        """The innermost activation has ended while the run goes on; in a chain, the activation of what comes next."""
        ...


class SandboxUsage(Struct, frozen=True):
    """For people who watch."""

    sandbox: int
    pid: int
    rss_bytes: int
    cpu_s: float


class Node(Protocol):
    @property
    def devices(self) -> tuple[DeviceSpec, ...]: ...

    async def start(self, listener: NodeListener) -> None:
        """Ready for commands on return. Whatever an earlier server left behind here is gone by then."""
        ...

    async def stop(self) -> None:
        """End every sandbox and zygote; nothing is reported any more."""
        ...

    def prepare(self, launch: Launch) -> None:
        """Have at hand what a sandbox of this launch will be made from, as far as there is room for it.

        Nothing is reported: what is wrong with it shows when a sandbox starts.
        """
        ...

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        """Then `sandbox_started` or `sandbox_lost`. Waits for stops and unloads on its device that are under way."""
        ...

    def run(self, sandbox: int, request: RunRequest) -> None:
        """Then `run_finished`, `sandbox_lost` or `sandbox_refused`. One at a time."""
        ...

    def output(self, sandbox: int) -> tuple[tuple[str, ...], ...]:
        """The lines that its run has printed so far, and those of each activation inside it, innermost first."""
        ...

    def stop_sandbox(self, sandbox: int) -> None:
        """Kill it with all its children; nothing is reported. One that is gone already is passed over."""
        ...

    def enforces(self, place: Place) -> bool:
        """Whether sandboxes are kept to their slices there."""
        ...

    def set_slice(self, sandbox: int, share: float, ceiling: float) -> None:
        """Its part of its device's compute: so much when others want it too, and at most so much."""
        ...

    def unload(self, sandbox: int) -> None:
        """Swap it out: it stands still until it is loaded again."""
        ...

    def load(self, sandbox: int) -> None:
        """Then `memory_loaded`."""
        ...

    def usage(self) -> list[SandboxUsage]: ...

    def device_usage(self) -> list[DeviceUsage]:
        """What sandboxes have used of accelerators so far, and hold there. Takes microseconds."""
        ...
