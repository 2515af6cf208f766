"""Simulate a scenario under an admission policy, and count what became of the calls."""

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.recorder import CallLine

OURS, SAMPLED, CLOCKWORK, FIFO = "reservation", "pareto_sampled", "clockwork", "accept_all"
LEARNED = "learned"


class SloOutcome(Struct, frozen=True):
    """Counts of the calls with limits, by what became of them."""

    calls: int
    met: int
    promised: int
    broken: int
    cost: float  # of all that ran
    last_s: float  # of the last arrival
    refused_after_s: tuple[float, ...]  # time from arrival to refusal, in order of size

    @property
    def goodput(self) -> float:
        """Return the calls per second that met both limits."""
        return self.met / self.last_s if self.last_s else 0.0

    @property
    def broken_part(self) -> float:
        return self.broken / self.promised if self.promised else 0.0


def settings_of(admission: str, **params: str) -> PolicySettings:
    """Return the policies of a run. `accept_all` runs calls in the order of their arrival."""
    own = {admission: params} if params else {}
    return PolicySettings("fcfs" if admission == FIFO else "fair_resident", admission=admission, params=own)


def measure(scenario: Scenario, settings: PolicySettings) -> SloOutcome:
    """Simulate and count. Calls without limits do not count."""
    lines: list[CallLine] = []
    simulate(scenario, settings, on_end=lines.append)
    limited = [line for line in lines if line.met is not None]
    return SloOutcome(
        len(limited),
        sum(bool(line.met) for line in limited),
        sum(line.promised for line in limited),
        sum(line.promised and not line.met for line in limited),
        sum(line.cost for line in limited),
        max((line.arrived_s for line in lines), default=0.0),
        tuple(sorted(line.ended_s - line.arrived_s for line in limited if line.end == "rejected")),
    )
