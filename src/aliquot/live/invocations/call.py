"""One invocation on its way through the live platform, from the gateway's door to its record."""

from collections.abc import Callable
from typing import Protocol

from aliquot.core.commands import Start
from aliquot.core.places import Place
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.node.base import BufferHandle, Outcome
from aliquot.live.node.shared_buffers import SandboxBuffers
from aliquot.live.store.records import Accepted, Action, Activation, Namespace


class Follower(Protocol):
    """Who wants to be told of a call while it goes on."""

    def printed(self, line: str) -> None: ...

    def ended(self, call: "Call") -> None:
        """Of one that was followed after it had been made. Its maker has `done`."""
        ...


class Call:
    """Filled in as it goes. The gateway makes it, `Service.submit` takes it, and `done` is called once at its end."""

    __slots__ = (
        "action",
        "activation",
        "arrived_s",
        "attempts",
        "begins",
        "begun_s",
        "called_inside",
        "carrier",
        "cause",
        "chain",
        "desk",
        "done",
        "durable",
        "ended",
        "followers",
        "function",
        "handed",
        "hands_on",
        "id",
        "init_s",
        "namespace",
        "notes",
        "outcome",
        "parcel",
        "parked",
        "payload",
        "pickled",
        "place",
        "reads",
        "reason",
        "resolved",
        "session",
        "start",
        "transaction",
        "unbegun",
        "wait_ms",
        "within",
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
        done: Callable[["Call"], None] | None = None,
    ) -> None:
        self.id = activation_id
        self.namespace = namespace  # the caller's
        self.resolved = resolved
        self.function = resolved.function  # of the caller's flows
        self.action: Action = resolved.action
        self.cause = cause  # the activation that this one is part of
        self.session = session
        self.notes = notes  # annotations of its record beside those that all have: JSON objects, each after a comma
        self.payload = payload  # JSON object with all parameters merged, or the SDK's pickled arguments
        self.pickled = pickled
        self.durable = durable  # it is in the store's queue: accepted before it ran
        # What is in the store's queue and begins with this run: itself, or the composition whose first component it is.
        self.begins = activation_id if durable else ""
        self.transaction = transaction
        self.done = done
        self.followers: tuple[Follower, ...] = ()
        self.arrived_s: float = 0  # by the platform's clock
        self.begun_s: float = 0  # the same; 0 until its run begins
        self.wait_ms = 0
        self.init_s: float | None = None  # when the start was cold
        self.place: Place = ()
        self.start: Start | None = None
        self.reason = ""  # the policy's, or why it was refused
        self.reads: int | None = None  # the sandbox through whose view of datasets its run reads
        self.parcel: BufferHandle | None = None  # with the large buffers of its arguments
        self.handed = False  # its payload is a pickle of what the component before it returned
        self.hands_on = False  # the component after it takes such a pickle
        self.desk: SandboxBuffers | None = None  # of the sandbox that calls: where a result's large buffers may go
        # What carries a chain has no record of its own; its steps have, each while it is the one that runs.
        self.chain: list[Call] | None = None  # the steps that have not begun
        self.called_inside = 0  # calls from function to function that its run has made
        self.within: list[Call] = []  # what runs inside its run now, outermost first
        self.carrier: Call | None = None  # the other way: inside whose run it runs
        self.attempts = 1
        self.unbegun = False  # its sandbox was gone before the run began: it may be tried again
        self.parked = False  # left in the store's queue for the next server
        self.ended = False  # its outcome is settled; its record may still be on its way to the disk
        self.outcome: Outcome | None = None  # None at the end: it was refused, and `reason` says why
        self.activation: Activation | None = None  # its record, from the end on

    def printed(self, line: str) -> None:
        for follower in self.followers:
            follower.printed(line)

    def follow(self, follower: Follower) -> None:
        """From now on, and to the end."""
        self.followers += (follower,)
        earlier = self.done

        def done(call: Call) -> None:
            call.done = None
            if earlier is not None:
                earlier(call)
            follower.ended(call)

        self.done = done

    def accepted(self, now_ms: int) -> Accepted:
        """As the store's queue keeps it: whole, unless it will never be run from there."""
        rerun = self.action.annotation("rerun") is True
        # What is too large to be kept ends with this server; one that was accepted at once is not.
        started = bool(self.begun_s)
        if self.parcel is not None and self.parcel.size > self.parcel.most_kept:
            rerun, started = False, True
        elif self.parcel is not None and (rerun or not started):
            self.payload, self.parcel = self.parcel.inlined(self.payload), None
        return Accepted(
            self.id,
            self.namespace.name,
            self.function,
            now_ms,
            self.payload,
            pickled=self.pickled,
            rerun=rerun,
            started=started,
            cause=self.cause,
            session=self.session,
        )
