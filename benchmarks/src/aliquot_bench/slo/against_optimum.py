"""Calls in time against the offline optimum, which knows all arrivals in advance."""

from collections.abc import Callable, Sequence

from aliquot.config import PolicySettings
from aliquot.sim.plots import PlotPanel
from aliquot_bench.result import Goal, ResultTable, at_least
from aliquot_bench.slo import instances
from aliquot_bench.slo.measuring import CLOCKWORK, OURS, settings_of
from aliquot_bench.slo.part import SEED, SloSizes

GOALS = {instances.ALIKE: 1.0, instances.LIMITS: 0.93, instances.MIXED: 0.88}
POLICIES = (OURS, CLOCKWORK)


class OptimumPart:
    """Compare on small random instances of three groups."""

    name = "offline optimum"

    def __init__(self, sizes: SloSizes) -> None:
        self._count = sizes.instances
        self._found: dict[str, dict[str, int]] = {}
        self._optimum: dict[str, int] = {}
        self.steps = len(instances.GROUPS)

    def run(self, on_step: Callable[[str], None]) -> None:
        for group in instances.GROUPS:
            on_step(f"offline optimum: {group}")
            made = instances.make_instances(group, self._count, SEED)
            self._optimum[group] = instances.optimum(made)
            self._found[group] = {policy: instances.in_time(made, _exact(policy)) for policy in POLICIES}

    def goals(self) -> Sequence[Goal]:
        return [
            at_least(f"offline optimum: {group}", self._found[group][OURS] / self._optimum[group], wanted, "times")
            for group, wanted in GOALS.items()
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [group, self._count * instances.CALLS, self._optimum[group], *(found[policy] for policy in POLICIES)]
            for group, found in self._found.items()
        ]
        columns = ["", "calls", "in time at most", *POLICIES]
        return [
            ResultTable("Against the offline optimum: nine calls, a GPU and a CPU lane, batches of 3", columns, rows)
        ]

    def panels(self) -> Sequence[PlotPanel]:
        return []


def _exact(policy: str) -> PolicySettings:
    """Return the policy for run times that are exact, so that it needs no margin."""
    return settings_of(policy, margin_s="0")
