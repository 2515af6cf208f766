"""A call: one invocation on its way through the live platform, from the gateway to its record.

    Call              an invocation of one action, or of a composition
      ChainCall       the run of several components of a sequence in one sandbox; its steps have the records
      NestedCall      a call that runs inside the run of another: a step of a chain, or a call within a group

The gateway makes a call and gives it to `Platform.submit`. `done` is called once when it has ended.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from aliquot.budgets import Reservation
from aliquot.core.commands import Start
from aliquot.core.places import Place
from aliquot.live.catalogue.needs import reruns_of
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call_objects import CallObjects
from aliquot.live.invocations.objective import CallObjective, StageCall
from aliquot.live.invocations.trace_context import TraceContext
from aliquot.live.node.base import BufferHandle, Outcome, PartReceiver, StepArguments
from aliquot.live.node.shared_buffers import SandboxBuffers
from aliquot.live.store.base import SMALL_PAYLOAD_BYTES
from aliquot.live.store.records import Accepted, Action, Activation, Namespace
from aliquot.result_cache import ResultKey


class Follower(Protocol):
    """Receives the log lines and the end of a running call."""

    @property
    def closed(self) -> bool:
        """True when the receiver has gone. It is then forgotten when another one comes."""
        ...

    def printed(self, line: str) -> None: ...

    def ended(self, call: "Call") -> None:
        """Handle the end of a call that was followed after it had been made. The maker of a call has `done`."""
        ...


class SharedArguments:
    """Arguments and results that pass between sandboxes as pickles with shared memory, beside the call's payload."""

    __slots__ = ("buffer", "handed", "hands_on", "objects", "reply_buffers")

    def __init__(
        self,
        *,
        buffer: BufferHandle | None = None,
        reply_buffers: SandboxBuffers | None = None,
        handed: bool = False,
        hands_on: bool = False,
        objects: tuple[BufferHandle, ...] | None = None,
    ) -> None:
        self.buffer = buffer  # the large buffers of the arguments
        self.reply_buffers = reply_buffers  # of the calling sandbox, for the large buffers of the result
        self.handed = handed  # the payload is a pickle that the previous component returned
        self.hands_on = hands_on  # the next component takes such a pickle, or the arrays of a graph
        self.objects = objects  # the payload is a container of objects, whose large buffers are here


class TaskVariables(NamedTuple):
    """The place of a task in its workflow, as its code may know it."""

    execution: str
    depth: int  # how many executions the task is inside of
    key: str  # the same for all attempts of one entry into the state
    token: str | None = None  # with which a callback answers
    until_s: float | None = None  # seconds since the epoch, when the execution gives the task up


class CallRun:
    """The progress of a call: where and when it runs, and the calls that run inside it."""

    __slots__ = (
        "arrived_s", "attempts", "begun_s", "init_s", "may_retry", "nested", "nested_count", "place", "start",
        "view_sandbox", "wait_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.arrived_s: float = 0  # on the platform's clock
        self.begun_s: float = 0  # on the platform's clock, or 0 until the run begins
        self.wait_ms = 0
        self.init_s: float | None = None  # duration of a cold start
        self.place: Place = ()
        self.start: Start | None = None
        self.view_sandbox: int | None = None  # the sandbox whose view of datasets the run reads
        self.attempts = 1
        self.may_retry = False  # the sandbox was lost before the run began, so the call may run elsewhere
        self.nested: list[NestedCall] = []  # calls that run inside this run now, outermost first
        self.nested_count = 0  # calls between functions of a group that this run has made

    def begin_with(self, outer: "CallRun") -> None:
        """Copy the times and the place of the outer run, whose first step this call is."""
        self.arrived_s, self.begun_s, self.init_s = outer.arrived_s, outer.begun_s, outer.init_s
        self.place, self.start = outer.place, outer.start


class Call:
    """One invocation of an action or a composition, with the progress of its run and its outcome."""

    __slots__ = (
        "action", "activation", "cause", "done", "durable", "ended", "event", "followers", "function", "id", "late",
        "namespace", "notes", "objective", "objects", "on_disk", "outcome", "parked", "payload", "pickled",
        "queue_entry", "reason", "reserved", "resolved", "result_key", "run", "session", "shared", "stage", "task",
        "trace", "transaction",
    )  # fmt: skip

    def __init__(
        self,
        activation_id: str,
        namespace: Namespace,
        resolved: ResolvedAction,
        payload: bytes | memoryview,
        *,
        pickled: bool = False,
        durable: bool = False,
        transaction: str = "",
        cause: str = "",
        notes: str = "",
        session: str = "",
        shared: SharedArguments | None = None,
        followers: tuple[Follower, ...] = (),
        done: "Callable[[Call], None] | None" = None,
        trace: TraceContext | None = None,
    ) -> None:
        self.id = activation_id
        self.namespace = namespace  # of the caller
        self.resolved = resolved
        self.function = resolved.function  # name of the flow in the caller's namespace
        self.action: Action = resolved.action
        self.payload = payload  # a JSON object with all parameters merged, or the SDK's pickled arguments
        self.event = ""  # id of the fired event that is its payload, see `Accepted.event`
        self.on_disk = False  # the payload is in the store's queue only
        self.reserved: Reservation | None = None  # the payload's part of the namespace's memory
        self.pickled = pickled
        self.shared = shared
        self.durable = durable  # in the store's queue: accepted before it ran
        # The entry of the store's queue that this run marks as started: the call itself, or the composition whose first
        # component it is. Empty if nothing is queued.
        self.queue_entry = activation_id if durable else ""
        self.transaction = transaction
        self.trace = trace  # the one that it is part of, if its caller has named one or is a call itself
        self.cause = cause  # the activation that this one is part of
        self.session = session
        self.notes = notes  # further annotations of the record, as JSON objects with a leading comma each
        self.followers = followers
        self.late: list[Follower] | None = None  # the followers that came after the call was made
        self.done = done
        self.run = CallRun()
        self.task: TaskVariables | None = None  # if the call is a task of a workflow
        self.objects: CallObjects | None = None  # of a call of a kernel graph, from its acceptance on
        self.objective: CallObjective | None = None  # if it has a deadline or a cost limit
        self.stage: StageCall | None = None  # if it belongs to an execution with limits
        self.result_key: ResultKey | None = None  # if equal calls may wait for its result, or it waits for one
        self.parked = False  # left in the store's queue for the next server
        self.ended = False  # the outcome is settled, though the record may not be on disk yet
        self.reason = ""  # given by the policy, or why the call was refused
        self.outcome: Outcome | None = None  # None at the end: the call was refused, and `reason` says why
        self.activation: Activation | None = None  # the record, from the end on

    @property
    def outermost(self) -> "Call":
        """The call whose run this one is part of, as the scheduler knows it."""
        return self

    @property
    def trace_id(self) -> str:
        """The id of the trace that it is part of, or begins."""
        return self.id if self.trace is None else self.trace.trace_id

    @property
    def log_facts(self) -> dict[str, str]:
        """The fields of a line in the server's log about this call."""
        return {"activation": self.id, "trace_id": self.trace_id}

    def printed(self, line: str) -> None:
        """Pass a log line to the followers."""
        for follower in self.followers:
            follower.printed(line)

    @property
    def takes_parts(self) -> bool:
        """Return whether the caller itself follows the call, and not only others who came later.

        An execution or a composition follows its calls for their lines alone, and takes whole results.
        """
        if not self.followers or getattr(self.followers[0], "part", None) is None:
            return False
        return self.late is None or self.followers[0] not in self.late

    def part(self, data: bytes, taken: Callable[[bool], None]) -> None:
        """Pass a part of the result to the caller, if it takes parts and has not gone."""
        caller: object = self.followers[0] if self.takes_parts and not self.followers[0].closed else None
        if isinstance(caller, PartReceiver):
            caller.part(data, taken)
        else:
            taken(False)

    def follow(self, follower: Follower) -> None:
        """Send every log line from now on, and the end of the call, to the follower."""
        self.followers = (*(one for one in self.followers if not one.closed), follower)
        if self.late is not None:
            self.late = [*(one for one in self.late if not one.closed), follower]
            return
        self.late = [follower]
        earlier = self.done

        def done(call: Call) -> None:
            call.done = None
            if earlier is not None:
                earlier(call)
            for one in self.late or ():
                one.ended(call)

        self.done = done

    def leave_payload_on_disk(self) -> None:
        """Free the memory of a large payload that is in the store's queue. It is read again when the call runs."""
        if len(self.payload) > SMALL_PAYLOAD_BYTES:
            self.payload, self.on_disk, self.reserved = b"", True, None

    def accepted(self, now_ms: int) -> Accepted:
        """Return the entry for the store's queue. Shared buffers are copied into its payload."""
        rerun = reruns_of(self.action) or 0
        started = int(bool(self.run.begun_s))
        buffer = self.shared.buffer if self.shared is not None else None
        if buffer is not None and buffer.size > buffer.max_kept:
            # Too large to be kept on disk, so the call is lost if this server stops. A call that is accepted before it
            # runs is never that large.
            rerun, started = 0, 1
        elif self.shared is not None and buffer is not None and (rerun or not started):
            self.payload, self.shared.buffer = buffer.inlined(self.payload), None
        return Accepted(
            self.id,
            self.namespace.owner,
            self.function,
            now_ms,
            b"" if self.event else self.payload,
            pickled=self.pickled,
            rerun=rerun,
            started=started,
            cause=self.cause,
            session=self.session,
            event=self.event,
        )


class NestedCall(Call):
    """A call that runs inside the run of another, in the same sandbox. The scheduler knows only the outer call.

    A step of a chain may have arguments: values, and parts of the results of earlier steps.
    """

    __slots__ = ("_outer", "arguments")

    def __init__(
        self,
        outer: Call,
        activation_id: str,
        resolved: ResolvedAction,
        payload: bytes | memoryview,
        *,
        transaction: str,
        cause: str,
        notes: str,
        followers: tuple[Follower, ...] = (),
        done: Callable[[Call], None] | None = None,
        arguments: StepArguments = None,
        trace: TraceContext | None = None,
    ) -> None:
        super().__init__(
            activation_id, outer.namespace, resolved, payload, transaction=transaction, cause=cause, notes=notes,
            session=outer.session, followers=followers, done=done, trace=trace,
        )  # fmt: skip
        self._outer = outer
        self.arguments = arguments

    @property
    def outermost(self) -> Call:
        """The call whose run this one is part of."""
        return self._outer


class ChainCall(Call):
    """The run of several components of a sequence in one sandbox. It has no record; each of its steps has."""

    __slots__ = ("steps",)

    def __init__(
        self,
        activation_id: str,
        namespace: Namespace,
        resolved: ResolvedAction,
        payload: bytes | memoryview,
        *,
        session: str,
        shared: SharedArguments | None,
        done: Callable[[Call], None],
    ) -> None:
        super().__init__(activation_id, namespace, resolved, payload, session=session, shared=shared, done=done)
        self.steps: list[NestedCall] = []  # those that have not begun
