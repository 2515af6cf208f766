"""Metrics of calls as plain numbers."""

import time
from heapq import nlargest

from aliquot.budgets import Budget
from aliquot.core.commands import Start
from aliquot.histogram import LatencyHistogram
from aliquot.live.invocations.call import Call

MAX_ACTIONS = 10_000  # of all namespaces; a namespace's actions beyond its part are counted together
OTHERS = ""


class ActionMetrics:
    """The counters and histograms of one action."""

    __slots__ = ("counts", "init", "promises", "run", "wait")

    def __init__(self) -> None:
        self.counts: dict[tuple[int, Start | None], int] = {}  # by status and kind of start
        # By the end of calls with an objective (refused, kept, broken, unpromised), and why it was refused or broken.
        self.promises: dict[tuple[str, str], int] = {}
        self.wait = LatencyHistogram()
        self.init = LatencyHistogram()
        self.run = LatencyHistogram()

    def count(self, call: Call) -> None:
        outcome = call.outcome
        if call.objective is not None:
            end = call.objective.end()
            self.promises[end] = self.promises.get(end, 0) + 1
        if outcome is None:  # the call was refused and did not run
            return
        run, counts = call.run, self.counts
        key = (outcome.status, run.start)
        counts[key] = counts.get(key, 0) + 1
        self.wait.observe(run.wait_ms / 1000)
        self.run.observe(outcome.run_s)
        if run.init_s is not None:
            self.init.observe(run.init_s)
            self._note_exemplars(call, outcome.run_s)
        elif call.trace is not None:
            self._note_exemplars(call, outcome.run_s)

    def _note_exemplars(self, call: Call, run_s: float) -> None:
        """Keep a call that has a trace of its own, or a cold start, as an example. Its spans are likely to be sent."""
        trace_id = call.trace_id
        run, now_s = call.run, time.time()
        self.wait.note(trace_id, run.wait_ms / 1000, now_s)
        self.run.note(trace_id, run_s, now_s)
        if run.init_s is not None:
            self.init.note(trace_id, run.init_s, now_s)

    @property
    def total(self) -> int:
        """The number of its ended calls."""
        return sum(self.counts.values())

    def add(self, other: "ActionMetrics") -> None:
        """Add the numbers of another action."""
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        for end, count in other.promises.items():
            self.promises[end] = self.promises.get(end, 0) + count
        for own, more in ((self.wait, other.wait), (self.init, other.init), (self.run, other.run)):
            own.add(more)


class Metrics:
    """The counters of all actions and triggers."""

    def __init__(self) -> None:
        self.actions: dict[tuple[str, str], ActionMetrics] = {}
        self.fires: dict[tuple[str, str], int] = {}  # by namespace and trigger
        self._known_actions = Budget("metrics", "actions", MAX_ACTIONS)
        self._known_triggers = Budget("metrics", "triggers", MAX_ACTIONS)

    def count(self, call: Call) -> None:
        """Count a call that did not come from the gateway: a component, or a call of a trigger's rule."""
        self.of_action(call.namespace.name, call.function).count(call)

    def count_fire(self, namespace: str, trigger: str) -> None:
        key = (namespace, trigger)
        if key not in self.fires and not _is_taken(self._known_triggers, namespace):
            key = (namespace, OTHERS)
        self.fires[key] = self.fires.get(key, 0) + 1

    def sum_of_actions(self) -> ActionMetrics:
        """Return the sum over all actions of all namespaces."""
        total = ActionMetrics()
        for action in self.actions.values():
            total.add(action)
        return total

    def busiest(self, number: int) -> list[tuple[tuple[str, str], ActionMetrics]]:
        """Return the actions with the most calls by their names, and the sum of the others at the end."""
        actions = self.actions
        if len(actions) <= number:
            return sorted(actions.items())
        chosen = set(nlargest(number, actions, key=lambda key: (actions[key].total, key)))
        others = ActionMetrics()
        for key, action in actions.items():
            if key not in chosen:
                others.add(action)
        return [*((key, actions[key]) for key in sorted(chosen)), ((OTHERS, OTHERS), others)]

    def of_action(self, namespace: str, action: str) -> ActionMetrics:
        key = (namespace, action)
        if key not in self.actions and not _is_taken(self._known_actions, namespace):
            key = (namespace, OTHERS)
        return self.actions.setdefault(key, ActionMetrics())


def _is_taken(known: Budget, namespace: str) -> bool:
    """Take a place for a further name of the namespace. Return False if it has its part already."""
    if not known.fits(namespace, 1):
        return False
    known.take(namespace, 1)
    return True
