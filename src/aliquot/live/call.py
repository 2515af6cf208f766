"""One invocation on its way through the live platform, from the gateway's door to its record."""

from collections.abc import Callable

from aliquot.core.commands import Start
from aliquot.live.node.base import Outcome
from aliquot.live.records import Action, Activation, Namespace


class Call:
    """Filled in as it goes. The gateway makes it, `Service.submit` takes it, and `done` is called once at its end."""

    __slots__ = (
        "action", "activation", "arrived_s", "cause", "device", "dispatched_s", "done", "durable", "id", "init_s",
        "namespace", "outcome", "payload", "pickled", "reason", "start", "started_ms", "started_s", "transaction",
        "wait_ms",
    )  # fmt: skip

    def __init__(
        self,
        activation_id: str,
        namespace: Namespace,
        action: Action,
        payload: bytes,
        *,
        pickled: bool = False,
        durable: bool = False,
        transaction: str = "",
        done: Callable[["Call"], None] | None = None,
    ) -> None:
        self.id = activation_id
        self.namespace = namespace  # the caller's
        self.action = action
        self.payload = payload  # JSON object with all parameters merged, or the SDK's pickled arguments
        self.pickled = pickled
        self.durable = durable  # it is in the store's queue: accepted before it ran
        self.transaction = transaction
        self.done = done
        # Times of the service's clock, in seconds; the record's are epoch milliseconds.
        self.arrived_s: float = 0
        self.dispatched_s: float = 0
        self.started_s: float = 0
        self.started_ms = 0
        self.wait_ms = 0
        self.init_s: float | None = None  # when the start was cold
        self.device = ""
        self.start: Start | None = None
        self.reason = ""  # the policy's, or why it was refused
        self.outcome: Outcome | None = None
        self.activation: Activation | None = None  # its record, from the end on
