"""Objectives of calls: when a call is needed and what it may cost, and what became of the promise that it got."""

from math import ceil
from typing import Any

from msgspec import Struct

from aliquot.core.admission.records import Blame, Late, Prefer, Refusal
from aliquot.live.catalogue.needs import parse_needs
from aliquot.live.catalogue.resolving import ResolvedAction

MIN_DEADLINE_S = 1e-6
MAX_DEADLINE_S = 366 * 86400.0
MAX_COST = 1e12


class CallLimits(Struct, frozen=True):
    """The limits that a caller or a function sets. At least one of them is given."""

    deadline_s: float | None = None  # counted from the arrival
    cost: float | None = None
    late: Late = Late.RUN  # what follows if its promise is broken
    prefer: Prefer = Prefer.COST  # among the places that meet the limits


def declared_limits(resolved: ResolvedAction) -> CallLimits | None:
    """Return the deadline and the cost limit that an action declares for its calls."""
    action = resolved.action
    if action.annotation("latency-slo-ms") is None and action.annotation("cost-slo") is None:
        return None
    needs = parse_needs(action)
    return CallLimits(needs.latency_slo_s, needs.cost_slo)


class CallObjective:
    """The limits of one call, and the scheduler's answers to them."""

    __slots__ = (
        "blame", "declared", "dispatched_s", "limits", "members", "met", "promised", "reason", "refusal",
    )  # fmt: skip

    def __init__(self, limits: CallLimits, *, declared: bool = False) -> None:
        """`declared` limits are those of the function or workflow. Where nothing can be promised, they do not count."""
        self.limits = limits
        self.declared = declared
        self.promised = False
        self.refusal: Refusal | None = None
        self.reason = ""  # of the refusal
        self.blame: Blame | None = None  # for its broken promise
        self.dispatched_s: float | None = None  # on the platform's clock
        self.met = False  # once it has ended
        self.members = 1  # calls that ran together with it, itself included

    def left_s(self, waited_s: float) -> float | None:
        """Return what is left of the deadline after a wait outside of the scheduler."""
        deadline_s = self.limits.deadline_s
        return None if deadline_s is None else max(MIN_DEADLINE_S, deadline_s - waited_s)

    def is_met(self, seconds: float, cost: float | None) -> bool:
        """Return whether a call that took so long and cost so much is within its limits."""
        limits = self.limits
        in_time = limits.deadline_s is None or seconds <= limits.deadline_s
        return in_time and (limits.cost is None or cost is None or cost <= limits.cost)

    @property
    def dropped(self) -> bool:
        """Return whether the call ends because its promise was broken."""
        return self.blame is not None and self.limits.late is Late.DROP

    def end(self) -> tuple[str, str]:
        """Return how it ended, and the reason of a refusal or the blame for a broken promise."""
        if self.refusal is not None:
            return "refused", str(self.refusal.why)
        if not self.promised:
            return "unpromised", ""
        return ("kept", "") if self.met else ("broken", str(self.blame or Blame.PLATFORM))

    def describe(self, *, met: bool) -> dict[str, Any]:
        """Return the objective as records have it."""
        limits, found = self.limits, dict[str, Any]()
        if limits.deadline_s is not None:
            found["deadline"] = _milliseconds(limits.deadline_s)
        if limits.cost is not None:
            found["costLimit"] = limits.cost
        found |= {"promised": self.promised, "met": met}
        if self.promised and not met:
            found["blame"] = self.blame or Blame.PLATFORM
        return found


class StageCall:
    """The place of a call in the plan of an execution with limits. The scheduler knows it by both names."""

    __slots__ = ("dispatched_s", "execution", "late", "members", "stage")

    def __init__(self, execution: str, stage: str, late: Late) -> None:
        self.execution = execution
        self.stage = stage  # empty if it has no place, as in a retry
        self.late = late
        self.dispatched_s: float | None = None  # on the platform's clock
        self.members = 1  # calls that ran together with it, itself included


def describe_refusal(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as callers get it, with times in milliseconds."""
    found: dict[str, Any] = {"why": refusal.why}
    for name, seconds in (("needs_ms", refusal.needs_s), ("earliest_ms", refusal.earliest_s)):
        if seconds is not None:
            found[name] = _milliseconds(seconds)
    if refusal.cost is not None:
        found["cost"] = round(refusal.cost, 6)
    if refusal.offer is not None:
        offer = refusal.offer
        found["offer"] = {
            **({} if offer.deadline_s is None else {"deadline_ms": ceil(offer.deadline_s * 1000)}),
            **({} if offer.cost is None else {"cost": ceil(offer.cost * 1e6) / 1e6}),
        }
    if refusal.retry_s is not None:
        found["retry_ms"] = ceil(refusal.retry_s * 1000)
    return found


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
