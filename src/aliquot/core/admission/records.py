"""Records of admission that events and commands carry: objectives, refusals and broken promises."""

from enum import StrEnum

from msgspec import Struct


class Late(StrEnum):
    """The treatment of a call whose promise is broken."""

    RUN = "run"  # it goes on as a plain call
    DROP = "drop"  # it ends


class Prefer(StrEnum):
    """The place that is preferred among those that meet both limits."""

    COST = "cost"  # the cheapest one
    LATENCY = "latency"  # the one with the earliest end
    BALANCED = "balanced"  # the one with the smallest product of cost and time


class Blame(StrEnum):
    """The cause of a broken promise."""

    OWN_RUN = "own run"  # the call ran longer than all runs of its function that were seen
    OTHER_RUN = "other's run"
    START = "start"  # a sandbox took longer to be ready
    LOST = "lost"  # a sandbox, a device or a node
    RESTART = "restart"  # of the server
    PLATFORM = "platform"


class RefusalCause(StrEnum):
    """The limit for which a call is refused."""

    DEADLINE = "deadline"
    COST = "cost"
    SHARE = "share"  # its tenant is ahead of its share of the devices
    NEVER = "never"  # no device could meet the limits, even if it were idle
    UNKNOWN = "unknown"  # nothing is known about its run time yet


class Offer(Struct, frozen=True, gc=False, omit_defaults=True):
    """Limits that would be accepted now."""

    deadline_s: float | None = None  # counted from the arrival
    cost: float | None = None


class Refusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason of a refusal in figures, and what would be accepted."""

    why: RefusalCause
    needs_s: float | None = None  # run and start, without waiting
    earliest_s: float | None = None  # the earliest end, counted from the arrival
    cost: float | None = None  # of the cheapest place
    offer: Offer | None = None
    retry_s: float | None = None  # when the same call may be accepted


class SavedTimes(Struct, frozen=True, gc=False):
    """The times of one window, for a store. `size` is 0 for starts and -1 for swap-ins."""

    kind: str
    size: int
    seconds: tuple[float, ...]
