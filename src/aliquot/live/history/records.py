"""The history of one call as it is told to people."""

from enum import StrEnum

from msgspec import Struct


class Phase(StrEnum):
    """The part of a call's life."""

    WAIT = "wait"  # it waits to be dispatched
    START = "start"  # its sandbox starts
    LOAD = "load"  # the memory of its sandbox is loaded to the device
    BEHIND = "behind"  # it was handed to a sandbox that runs another call
    RUN = "run"
    RESTART = "restart"  # the server was down, and has not taken the call up again


class CallEnd(StrEnum):
    """The end of a call."""

    COMPLETED = "completed"
    FAILED = "failed"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"  # the server was killed, and did not take the call up again
    OPEN = "open"  # it has not ended


class HeldTime(Struct, frozen=True, rename="camel"):
    """The seconds for which a function occupied what the call needed, added up over its runs."""

    namespace: str
    action: str
    run_seconds: float


class Piece(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a call's life with one phase, and one cause if the call waited. Times are epoch seconds."""

    phase: Phase
    start: float
    end: float
    cause: str = ""
    detail: str = ""
    holders: tuple[HeldTime, ...] = ()

    @property
    def seconds(self) -> float:
        return self.end - self.start


class StartCause(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The reason for which no warm sandbox was there: the sandbox that its function had before, or that it had none."""

    reason: str
    at: float = 0  # when that sandbox ended or was moved; 0 if there was none
    room_for: str = ""  # the function whose call needed its place, as namespace/name


class PlacedCall(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A dispatch: the sandbox and devices that the call got, and the policy's reason."""

    at: float
    sandbox: int
    place: tuple[str, ...]
    start: str
    reason: str
    cause: StartCause | None = None  # unless the start was warm


class CallTimeline(Struct, frozen=True, rename="camel"):
    """The life of a call, cut into pieces that follow each other without a gap."""

    activation_id: str
    namespace: str
    action: str
    policies: str
    arrived: float
    ended: float
    end: CallEnd
    reason: str
    dispatches: tuple[PlacedCall, ...]
    pieces: tuple[Piece, ...]

    def seconds_of(self, phase: Phase) -> float:
        return sum(piece.seconds for piece in self.pieces if piece.phase is phase)


OTHERS = "others"


def for_tenant(timeline: CallTimeline, tenant: str) -> CallTimeline:
    """Return the timeline without the names of other tenants and of their functions."""
    return CallTimeline(
        timeline.activation_id,
        timeline.namespace,
        timeline.action,
        timeline.policies,
        timeline.arrived,
        timeline.ended,
        timeline.end,
        timeline.reason,
        tuple(_hidden_dispatch(dispatch, tenant) for dispatch in timeline.dispatches),
        tuple(_hidden_piece(piece, tenant) for piece in timeline.pieces),
    )


def _hidden_dispatch(dispatch: PlacedCall, tenant: str) -> PlacedCall:
    cause = dispatch.cause
    if cause is None or not cause.room_for or cause.room_for.startswith(f"{tenant}/"):
        return dispatch
    hidden = StartCause(cause.reason, cause.at, OTHERS)
    return PlacedCall(dispatch.at, dispatch.sandbox, dispatch.place, dispatch.start, dispatch.reason, hidden)


def _hidden_piece(piece: Piece, tenant: str) -> Piece:
    own = tuple(held for held in piece.holders if held.namespace == tenant)
    others = sum(held.run_seconds for held in piece.holders if held.namespace != tenant)
    holders = (*own, HeldTime(OTHERS, "", others)) if others else own
    return Piece(piece.phase, piece.start, piece.end, piece.cause, piece.detail, holders)
