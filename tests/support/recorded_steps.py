"""The steps of a simulated run, as a live server would write them to its journal."""

from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.engine import Simulation

EPOCH_S = 1_700_000_000


def recorded_steps(scenario, settings):
    """Simulate a scenario, and return each step with its time of day, in epoch seconds."""
    live = Simulation(scenario, settings, scenario.workload.overview(), QUEUEING, None)
    decide, steps = live.scheduler.step, []

    def step(now, events):
        commands = decide(now, events)
        steps.append((JournalStep(0, now, list(events), commands), EPOCH_S + now))
        return commands

    live.scheduler.step = step
    for _ in live.moments():
        pass
    return steps
