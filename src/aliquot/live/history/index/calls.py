"""The calls of the index, by id and in the order in which they were found."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from sys import intern

from aliquot.core.commands import Start
from aliquot.core.model import FlowKey
from aliquot.live.history.records import CallEnd

MAX_CALLS = 200_000
MAX_AGE_S = 6 * 3600.0
SUCCESS, APPLICATION_ERROR, DEVELOPER_ERROR, PLATFORM_ERROR = range(4)
UNKNOWN_STATUS = -1  # the record is not there yet
COMPOSITION = "composition"  # the start of a call that the scheduler does not see: a sequence, a workflow


class IndexedCall:
    """A call as the journal and its record tell it. Times are epoch seconds."""

    __slots__ = (
        "arrived", "began", "cause", "devices", "dispatched", "end", "ended", "error", "execution", "finished", "flow",
        "id", "number", "owner", "reason", "sandbox", "session", "start", "start_cause", "status",
    )  # fmt: skip

    def __init__(self, call_id: str, number: int, flow: FlowKey, arrived: float) -> None:
        self.id = call_id
        self.number = number  # position in the index, counted from the first call that it has seen
        self.flow = flow
        self.arrived = arrived
        self.dispatched: float | None = None
        self.began: float | None = None  # when its run began
        self.finished: float | None = None  # when its run ended
        self.ended: float | None = None
        self.end = CallEnd.OPEN
        self.start = ""  # a `Start`, `COMPOSITION`, or nothing before it is dispatched
        self.start_cause = ""  # why it was not warm
        self.sandbox = 0
        self.devices: tuple[str, ...] = ()
        self.session: str | None = None
        self.execution: str | None = None
        self.reason = ""  # of its dispatch, or of its failure
        self.cause = ""  # of the longest part of its wait, once the journal was replayed
        self.status = UNKNOWN_STATUS
        self.owner = ""  # of its record
        self.error = ""

    @property
    def wait_s(self) -> float | None:
        """The time until it was dispatched, or until its end if it never was."""
        until = self.dispatched if self.dispatched is not None else self.ended
        return None if until is None else max(0.0, until - self.arrived)

    @property
    def init_s(self) -> float:
        """The time in which its sandbox started or was loaded."""
        if self.dispatched is None or self.began is None or self.start in {Start.WARM, COMPOSITION}:
            return 0.0
        return self.began - self.dispatched

    @property
    def run_s(self) -> float | None:
        return None if self.began is None or self.finished is None else max(0.0, self.finished - self.began)

    @property
    def duration_s(self) -> float | None:
        return None if self.ended is None else max(0.0, self.ended - self.arrived)

    @property
    def failed(self) -> bool:
        return self.status > SUCCESS or self.end not in {CallEnd.COMPLETED, CallEnd.OPEN}


class CallTable:
    """The newest calls. Older ones are forgotten."""

    def __init__(self, max_calls: int = MAX_CALLS, max_age_s: float = MAX_AGE_S) -> None:
        self._max_calls = max_calls
        self._max_age_s = max_age_s
        self._by_id: dict[str, IndexedCall] = {}
        self._order: deque[IndexedCall] = deque()
        self._next = 0
        self._flows: dict[FlowKey, FlowKey] = {}  # one object for each

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, call_id: str) -> IndexedCall:
        return self._by_id[call_id]

    def get(self, call_id: str) -> IndexedCall | None:
        return self._by_id.get(call_id)

    @property
    def oldest_s(self) -> float | None:
        return self._order[0].arrived if self._order else None

    def add(self, call_id: str, flow: FlowKey, arrived: float) -> IndexedCall:
        """Add a call that is not in the table, and forget those that are too many or too old."""
        known = self._flows.get(flow)
        if known is None:
            known = self._flows[flow] = FlowKey(intern(flow[0]), intern(flow[1]))
        call = self._by_id[call_id] = IndexedCall(call_id, self._next, known, arrived)
        self._next += 1
        self._order.append(call)
        while len(self._order) > self._max_calls or self._order[0].arrived < arrived - self._max_age_s:
            del self._by_id[self._order.popleft().id]
        return call

    def newest_first(self, before: IndexedCall | None = None) -> Iterator[IndexedCall]:
        """Yield the calls from the newest on, or from the one before the given one."""
        skipped = 0 if before is None else self._next - before.number
        return islice(reversed(self._order), skipped, None)
