"""Search the calls of the index, and show them to the one who asks."""

from msgspec import Struct

from aliquot.live.history.index.calls import COMPOSITION, UNKNOWN_STATUS, CallTable, IndexedCall
from aliquot.live.history.messages import Search, Viewer
from aliquot.live.history.records import CallEnd

MAX_FOUND = 500
STATUSES = ("success", "application error", "developer error", "platform error")
FAILED, OPEN = "failed", "open"


class FoundCall(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A call in a list. Times are epoch seconds, durations seconds."""

    activation_id: str
    namespace: str
    action: str
    arrived: float
    status: str
    wait: float | None = None
    init: float = 0.0
    run: float | None = None
    duration: float | None = None
    start: str = ""
    start_cause: str = ""
    devices: tuple[str, ...] = ()
    sandbox: int = 0
    session: str = ""
    execution: str = ""
    cause: str = ""
    reason: str = ""
    error: str = ""


class FoundCalls(Struct, frozen=True, rename="camel"):
    """A part of the calls that match, the newest first."""

    calls: list[FoundCall]
    cursor: str  # for the next part; empty after the last
    looked: int  # own calls that were compared
    indexed: int | None  # calls that are in the index; only the operator is told
    oldest: float | None  # when the oldest of them arrived; only the operator is told
    complete: bool  # whether the index has all that the journal has
    explained_since: float | None = None  # the causes of waits are known from here on, if the search names one


def may_see(viewer: Viewer, call: IndexedCall) -> bool:
    """Return whether the one who asks may see a call. A later namespace of the same name may not."""
    if viewer.is_operator:
        return True
    if call.flow[0] != viewer.tenant:
        return False
    return call.owner == viewer.owner if call.owner else call.arrived >= viewer.since_s


def status_of(call: IndexedCall) -> str:
    if call.status != UNKNOWN_STATUS:
        return STATUSES[call.status] if call.status < len(STATUSES) else STATUSES[-1]
    return OPEN if call.end in {CallEnd.OPEN, CallEnd.COMPLETED} else str(call.end)


def search(calls: CallTable, query: Search, *, complete: bool, explained_since: float | None) -> FoundCalls:
    """Return the calls that match, from the newest or from those after the cursor on."""
    limit = min(max(1, query.limit), MAX_FOUND)
    found: list[FoundCall] = []
    looked, cursor = 0, ""
    for call in calls.newest_first(calls.get(query.cursor) if query.cursor else None):
        if not may_see(query.viewer, call) or call.arrived < query.since_s:
            continue
        looked += 1
        if _matches(query, call):
            if len(found) == limit:
                cursor = found[-1].activation_id
                break
            found.append(shown(call))
    indexed, oldest_s = (len(calls), calls.oldest_s) if query.viewer.is_operator else (None, None)
    return FoundCalls(found, cursor, looked, indexed, oldest_s, complete, explained_since)


def shown(call: IndexedCall) -> FoundCall:
    return FoundCall(
        call.id, *call.flow, call.arrived, status_of(call),
        None if call.start == COMPOSITION else call.wait_s, call.init_s, call.run_s, call.duration_s,
        call.start, call.start_cause, call.devices, call.sandbox, call.session or "", call.execution or "",
        call.cause, call.reason, call.error,
    )  # fmt: skip


def _matches(query: Search, call: IndexedCall) -> bool:
    return (
        (not query.namespace or call.flow[0] == query.namespace)
        and (not query.name or query.name in call.flow[1])
        and (not query.upto_s or call.arrived <= query.upto_s)
        and (not query.min_duration_s or (call.duration_s or 0.0) >= query.min_duration_s)
        and (not query.min_wait_s or (call.wait_s or 0.0) >= query.min_wait_s)
        and (not query.start or call.start == query.start)
        and (not query.device or query.device in call.devices)
        and (not query.session or call.session == query.session)
        and (not query.cause or call.cause == query.cause)
        and (not query.error or query.error.casefold() in call.error.casefold())
        and (not query.status or _has_status(query.status, call))
    )


def _has_status(wanted: str, call: IndexedCall) -> bool:
    if wanted == FAILED:
        return call.failed
    return status_of(call) == wanted
