"""Passes on what is known about the future: to the scheduler, and from it to the operator."""

from collections.abc import Callable

from msgspec import Struct

from aliquot.core.events import CallExpected, Event, MoveAsked
from aliquot.core.model import CPU
from aliquot.core.scheduler import Scheduler
from aliquot.live.invocations.flows import Flows

MAX_TENANTS = 10_000  # whose sessions are remembered
GAP_KEEP = 0.7  # weight of the known time from the begin of a session to its first call
MAX_BEGUN = 10_000  # sessions without a call


class CapacityRow(Struct, frozen=True, rename="camel"):
    """The devices of one kind that are there, and those that the demand which is foreseen takes."""

    kind: str
    there: int
    middle: int  # half of the time
    wanted: int  # 95 % of the time
    by_s: float  # seconds within which they are wanted
    reason: str


class AheadOfDemand:
    """Calls that are known to come, moves that the operator asks for, and the capacity that is wanted."""

    def __init__(
        self, scheduler: Scheduler, flows: Flows, post: Callable[[Event], None], now: Callable[[], float]
    ) -> None:
        """`post` passes events to the scheduler, whose time is `now`."""
        self._scheduler = scheduler
        self._flows = flows
        self._post = post
        self._now = now
        self._sessions = FirstCalls()

    @property
    def is_on(self) -> bool:
        """Return whether anything is started ahead. Otherwise known calls are not worth an event."""
        return self._scheduler.foresight.policy.step_s is not None

    def expect(self, tenant: str, function: str, in_s: float, source: str) -> None:
        """Tell that a function will be called in so many seconds."""
        if self.is_on and self._flows.has(tenant, function):
            self._post(CallExpected(tenant, self._flows.flow(tenant, function), self._now() + in_s, source))

    def expect_after(self, tenant: str, running: str, function: str, source: str) -> None:
        """Tell that a function will be called when a run of another has ended, which is about to begin."""
        if not self.is_on:
            return
        flow = self._scheduler.registry.flows.get((tenant, self._flows.flow(tenant, running)))
        if flow is None:
            return
        start_s = 0.0 if flow.is_resident() else flow.start_estimate_s or 0.0
        self.expect(tenant, function, start_s + (flow.run_estimate_s or 0.0), source)

    def session_began(self, tenant: str, session: str) -> None:
        """Tell which function the session will probably call first, if the tenant's last sessions began alike."""
        if not self.is_on:
            return
        known = self._sessions.began(tenant, session, self._now())
        if known is not None:
            self.expect(tenant, known[0], known[1], "session that begins")

    def session_called(self, tenant: str, session: str, function: str) -> None:
        """Learn from the first call of a session."""
        if self._sessions.waiting:
            self._sessions.called(tenant, session, function, self._now())

    # --- for the operator ---------------------------------------------------------------------------------

    def move(self, sandbox: int, to: str) -> str | None:
        """Ask for a sandbox to be moved. Return why it cannot move now, or None."""
        refusal = self._scheduler.foresight.moves.refusal(sandbox, to)
        if refusal is None:
            self._post(MoveAsked(sandbox, to))
        return refusal

    def moves(self) -> dict[str, int]:
        """Return how many moves have begun, are done and have failed."""
        moves = self._scheduler.foresight.moves
        return {"begun": moves.begun, "done": moves.done, "failed": moves.failed}

    def capacity(self) -> list[CapacityRow]:
        """Return a row for each kind of accelerator."""
        found, devices = self._scheduler.foresight.capacity, self._scheduler.registry.devices.values()
        there: dict[str, int] = dict.fromkeys(found.wanted, 0)
        for device in devices:
            if device.spec.kind != CPU:
                there[device.spec.kind] = there.get(device.spec.kind, 0) + 1
        rows = []
        for kind, count in there.items():
            want = found.wanted.get(kind)
            told = (0, 0.0, "nothing is foreseen") if want is None else (want.count, want.by_s, want.reason)
            rows.append(CapacityRow(kind, count, found.middle.get(kind, 0), *told))
        return rows


class FirstCalls:
    """The first call of each tenant's sessions, and how long after their begin it comes."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str], float] = {}  # when sessions without a call began
        self._known: dict[str, tuple[str, float]] = {}  # by tenant: function, and seconds

    def began(self, tenant: str, session: str, now: float) -> tuple[str, float] | None:
        """Note that a session began, and return the function and the seconds that are known of the tenant."""
        if len(self.waiting) >= MAX_BEGUN:
            del self.waiting[next(iter(self.waiting))]
        self.waiting[tenant, session] = now
        return self._known.get(tenant)

    def called(self, tenant: str, session: str, function: str, now: float) -> None:
        """Note the first call of a session. A tenant whose sessions begin in another way is not known any more."""
        began = self.waiting.pop((tenant, session), None)
        if began is None:
            return
        known, gap_s = self._known.pop(tenant, None), now - began
        if len(self._known) >= MAX_TENANTS:
            del self._known[next(iter(self._known))]
        if known is not None and known[0] == function:
            gap_s = GAP_KEEP * known[1] + (1 - GAP_KEEP) * gap_s
        self._known[tenant] = (function, gap_s)
