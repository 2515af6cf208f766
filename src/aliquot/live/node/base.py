"""The interface of a node: the service passes the core's commands to it, and a listener receives the outcomes.

Sandboxes have the core's numbers. Everything here is called on the event loop and returns at once. The listener is
called on the event loop too, and never from within the call that caused the outcome.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw, Struct

from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.places import Place
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.environments.build_queue import BuildStatus


class Status(IntEnum):
    """The end of an invocation. The numbers are OpenWhisk's `statusCode`."""

    SUCCESS = 0
    APPLICATION_ERROR = 1  # the function's result has `error`
    DEVELOPER_ERROR = 2  # the function crashed, exceeded its time or memory, or does not compile
    INTERNAL_ERROR = 3  # the platform's own fault


class BufferHandle(Protocol):
    """Shared memory with the large buffers of a pickled value (`node.shared_buffers`)."""

    @property
    def fd(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_kept(self) -> int:
        """The size in bytes up to which the value may be stored on disk."""
        ...

    def inlined(self, body: bytes | memoryview) -> bytes | memoryview:
        """Return the pickle's envelope followed by the contents of the buffer."""
        ...


class Member(Struct, frozen=True):
    """One function of a group, at one revision."""

    name: str  # `name` or `package/name`
    code: str
    binary: bool
    main: str
    env: dict[str, str]
    sdk: bool
    init_names: tuple[str, ...] = ()  # parameters that are variables of the environment and no arguments
    file: str = ""  # name of the file that the code comes from, or empty


class Launch(Struct, frozen=True):
    """Everything that a sandbox needs to serve a function, or a group of functions, of one tenant.

    In a group, code and environment are those of the members. The sandbox starts with the member named by `main`.
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
    memory_bytes: int  # limit of host memory
    logs_bytes: int
    imports: tuple[str, ...] = ()  # modules that the zygote imports
    requirements: tuple[str, ...] = ()  # packages of the function's environment
    place: Place = (CPU,)
    share: float = 0  # guaranteed share of each device's compute
    device_bytes: int = 0  # limit of memory on each device
    sdk: bool = False  # the code is a module of `aliquot.App` functions and `main` one of them
    datasets: tuple[str, ...] = ()  # names of the datasets that are mounted as directories
    volumes: tuple[str, ...] = ()  # names of the volumes that are mounted as directories
    members: tuple[Member, ...] = ()  # the functions of a group
    init_names: tuple[str, ...] = ()  # parameters that are variables of the environment and no arguments
    file: str = ""  # name of the file that the code comes from, or empty
    exit: bool = False  # it has code to run when the sandbox is stopped
    batch: int = 1  # maximum number of calls in one run
    module: str = ""  # the platform's module that serves the code, or empty if the code is a program
    device_bytes_per_s: float = 0  # at most, to a virtual device; 0 means no limit
    constants: tuple[tuple[str, str], ...] = ()  # digests and paths of files that the module reads


class OutputListener(Protocol):
    """Receives each line that a run prints, as soon as the node has read it."""

    def printed(self, line: str) -> None: ...


@runtime_checkable
class PartReceiver(Protocol):
    """Receives the parts of a result as they come."""

    def part(self, data: bytes, taken: Callable[[bool], None]) -> None:
        """Handle a part, which is JSON. Call `taken` when the next may come, with False if none shall."""
        ...


class NestedRun(Struct, frozen=True):
    """The activation of a function that runs inside another's run, or after it in a chain."""

    invocation: str
    env: dict[str, str]  # __OW_* of this activation
    timeout_ms: int
    logs_bytes: int
    listener: OutputListener | None = None


class StepArgument(Struct, frozen=True, omit_defaults=True):
    """An argument of a step: a value of JSON, or the part at a path in the result of an earlier step."""

    value: Any = None
    step: int | None = None  # counted from 0
    path: tuple[str | int, ...] = ()


StepArguments: TypeAlias = dict[str, StepArgument] | None


class ChainStep(Struct, frozen=True):
    """One function of a chain, with defaults for the parameters that it is not given otherwise.

    Without arguments it gets the whole result before it. The variables of a later step are sent ahead, so that the
    sandbox need not ask for them.
    """

    function: str
    defaults: dict[str, Raw] = {}
    arguments: StepArguments = None
    env: dict[str, str] = {}


class BatchItem(Struct, frozen=True):
    """One call of a batch, as `aliquot.runtime.batch` reads it."""

    activation: str
    form: str  # of its payload: json, pickled, handed or objects
    size: int  # of its payload
    task: bool = False  # its errors have the names of exceptions
    hand_on: bool = False  # a pickle will do as its result, because the next function of a sequence takes one
    defaults: dict[str, Raw] = {}  # parameters for those that a handed value lacks
    objects: int = 0  # its part of the request's buffers of objects


class OutputBuffer(Protocol):
    """Memory that a run fills and the server reads (`node.output_memory`)."""

    @property
    def token(self) -> str:
        """The name under which the output stays on the device, or nothing."""
        ...

    @property
    def is_settled(self) -> bool:
        """True when the memory is written, or never will be."""
        ...

    def give(self) -> list[int]:
        """Return the descriptors for the executor that fills the memory. The caller closes them."""
        ...

    def share(self) -> list[int]:
        """Return the descriptors for an executor that waits until the memory is written. The caller closes them."""
        ...


class InputFile(Struct, frozen=True):
    """An object that is an input: its key, and the file of its version.

    With a token it may be on the device. With a memory, another call's output, it is not on disk yet.
    """

    key: str
    sha256: str
    path: str
    token: str = ""
    memory: OutputBuffer | None = None


class OutputFile(Struct, frozen=True):
    """An output that becomes an object: its name, its key, and the memory that the run fills."""

    name: str
    key: str
    memory: OutputBuffer


class KernelFiles(Struct, frozen=True):
    """The objects of a call of a kernel graph."""

    inputs: tuple[InputFile, ...] = ()
    outputs: tuple[OutputFile, ...] = ()


class RunRequest(Struct, frozen=True, gc=False):
    """One run of a function. The payload is a JSON object, or the SDK's pickled arguments.

    The payload of a batch has those of its items one behind another.
    """

    invocation: str
    payload: bytes | memoryview
    pickled: bool
    env: dict[str, str]  # __OW_* of this activation
    timeout_ms: int
    logs_bytes: int
    listener: OutputListener | None = None
    steps: tuple[ChainStep, ...] = ()  # functions of a group that run one on the result of another
    shared_buffer: BufferHandle | None = None  # with the large buffers of pickled arguments
    share: bool = False  # a pickled result may come in a shared buffer
    handed: bool = False  # the payload is the pickled result of the previous function in a sequence
    hand_on: bool = False  # the next function takes a pickle, so the result need not be JSON
    defaults: dict[str, Raw] = {}  # parameters for those that the handed value lacks
    # The payload is a container (`runtime.objects`) whose objects have their large buffers here.
    objects: tuple[BufferHandle, ...] | None = None
    kernel: KernelFiles | None = None  # objects of a call of a kernel graph
    items: tuple[BatchItem, ...] = ()  # calls of a batch; its reply is read by the service


class Outcome(Struct, frozen=True, gc=False):
    """The outcome of a run, or of a start that failed."""

    status: Status
    result: bytes | memoryview  # JSON, as a view when it is large; an object with `error` for an error
    run_s: float  # from the request frame to the reply
    logs: tuple[str, ...] = ()  # formatted lines, both streams
    pickled: bytes | memoryview | None = None  # the SDK's result, which `result` then describes
    timed_out: bool = False
    shared_buffer: BufferHandle | None = None  # with the large buffers of the pickled result
    outer: tuple[tuple[str, ...], ...] = ()  # the lines of its callers in the same sandbox, innermost first
    inside_s: float = 0.0  # time of the run as its sandbox says, or 0
    failure: str = ""  # how a run ended that did not reply, in our own words


class NodeListener(Protocol):
    """Receives the events of a node: the service."""

    def sandbox_started(self, sandbox: int, init_s: float, logs: tuple[str, ...]) -> None:
        """Handle a sandbox that is initialised and waits for its first run. The logs are those of the import."""
        ...

    def sandbox_lost(self, sandbox: int, outcome: Outcome) -> None:
        """Handle the end of a sandbox, of which nothing is reported afterwards.

        The outcome is that of its run or of its start. A sandbox that ends while it is idle has an outcome too.
        """
        ...

    def sandbox_refused(self, sandbox: int) -> None:
        """Handle the end of a sandbox that has not begun the run it was given. The run may go to another sandbox."""
        ...

    def memory_loaded(self, sandbox: int) -> None: ...

    def device_lost(self, device: str, why: str) -> None:
        """Handle a device that has failed. The loss of its sandboxes has been reported before."""
        ...

    def run_finished(self, sandbox: int, outcome: Outcome) -> None:
        """Handle the end of a run, after which the sandbox can take another."""
        ...

    def runs_taken_back(self, sandbox: int, count: int) -> None:
        """Handle the news that the last `count` runs handed ahead to the sandbox have not begun, and never will."""
        ...

    def began_inside(self, sandbox: int, function: str) -> NestedRun | str:
        """Return the activation for a function that the running one calls in its process, or why it cannot run."""
        ...

    def ended_inside(self, sandbox: int, outcome: Outcome) -> NestedRun | None:
        """Handle the end of the innermost activation of a run. In a chain, return the activation of the next step."""
        ...


class SandboxUsage(Struct, frozen=True):
    """The memory and CPU time of a sandbox, for the operator's status."""

    sandbox: int
    pid: int
    rss_bytes: int
    cpu_s: float  # of all its processes, where they are counted
    processes: int = 1  # with those that earlier calls left behind; 1 if they are not counted
    frozen: bool = False


class Node(Protocol):
    @property
    def devices(self) -> tuple[DeviceSpec, ...]: ...

    async def start(self, listener: NodeListener) -> None:
        """Remove what an earlier server left on the machine, and get ready for commands."""
        ...

    async def stop(self) -> None:
        """End every sandbox and zygote. Nothing is reported any more."""
        ...

    def prepare(self, launch: Launch) -> None:
        """Prepare the environment and the zygote for sandboxes of this launch, if there is space for another zygote.

        Nothing is reported. An error shows when a sandbox starts.
        """
        ...

    def has_environment(self, requirements: tuple[str, ...]) -> bool:
        """Return whether an environment with these requirements is built, so that a start need not wait for it."""
        ...

    def build_environment(
        self, requirements: tuple[str, ...], tenant: str, then: Callable[[Outcome | None], None]
    ) -> None:
        """Build an environment, and call `then` with None, or with the outcome for calls that cannot run."""
        ...

    def start_sandbox(self, sandbox: int, launch: Launch) -> None:
        """Start a sandbox and report `sandbox_started`, `sandbox_lost`, or `sandbox_refused` without an environment.

        The start waits for stops and unloads that are going on on its devices. It has the time limit of the launch.
        """
        ...

    def run(self, sandbox: int, request: RunRequest) -> None:
        """Run a request and report `run_finished`, `sandbox_lost` or `sandbox_refused`. One run at a time."""
        ...

    def run_next(self, sandbox: int, request: RunRequest) -> bool:
        """Hand a request to a busy sandbox, which runs it next. Return False if it does not take it."""
        ...

    def take_back(self, sandbox: int) -> None:
        """Take back the runs handed ahead to a sandbox that have not begun, and report `runs_taken_back`."""
        ...

    def output(self, sandbox: int) -> tuple[tuple[str, ...], ...]:
        """Return the lines that each activation of the current run has printed so far, innermost first."""
        ...

    def stop_sandbox(self, sandbox: int) -> None:
        """Kill a sandbox with all its children, if it still exists. Nothing is reported."""
        ...

    def enforces(self, place: Place) -> bool:
        """Return whether slices are enforced on the devices of the place."""
        ...

    def set_slice(self, sandbox: int, share: float, ceiling: float) -> None:
        """Set a sandbox's guaranteed share of its device's compute, and the most that it may use."""
        ...

    def set_weight(self, tenant: str, weight: float) -> None:
        """Set the weight of a tenant's sandboxes against those of others on the node's processors."""
        ...

    def unload(self, sandbox: int) -> None:
        """Swap a sandbox out. It is stopped until it is loaded again."""
        ...

    def load(self, sandbox: int) -> None:
        """Swap a sandbox in and report `memory_loaded`."""
        ...

    def move(self, sandbox: int, place: Place, then: Callable[[str | None], None]) -> None:
        """Move a sandbox to another device while it goes on, and call `then` with None, or why it stays.

        `then` is not called if the sandbox ends before.
        """
        ...

    def usage(self) -> list[SandboxUsage]: ...

    def executor_figures(self) -> dict[str, float]:
        """Return the numbers of executors and their graphs, and what they have done."""
        ...

    def build_status(self) -> list[BuildStatus]:
        """Return the builds of environments that run or wait, in the order in which they were asked for."""
        ...

    def pid_of(self, sandbox: int) -> int | None:
        """Return the pid of a sandbox's process, or None if it has none."""
        ...

    def device_usage(self) -> list[DeviceUsage]:
        """Return what sandboxes have used of accelerators so far, and hold there now. Takes microseconds."""
        ...
