"""A cluster of equal nodes serves its calls as well as nodes that each have a scheduler of their own."""

from bytecodes import BytecodeCounter

from aliquot.config import PolicySettings
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.engine import Simulation
from aliquot_bench.cluster import SeparateNodes, cluster, simulate_cluster

NODES = 20  # 80 devices, so that decisions look at a few of them
DURATION_S = 40


def test_a_cluster_is_as_fair_and_as_busy_as_separate_nodes():
    separate = SeparateNodes(NODES, "fair_resident", DURATION_S)
    together = simulate_cluster(NODES, "fair_resident", DURATION_S)
    assert together.completed == separate.completed
    assert together.completed / together.makespan_s / NODES >= 0.95 * separate.per_second
    assert together.fairness.jain >= 0.95 * separate.jain
    assert together.latency_s.mean <= 1.05 * separate.mean_s


def bytecodes_per_call(nodes):
    """Simulate a few seconds of so many nodes, and count a part of the steps."""
    scenario = cluster(range(nodes), 6)
    overview = scenario.workload.overview()
    simulation = Simulation(scenario, PolicySettings("fair_resident"), overview, QUEUEING, None)
    step, counter, steps = simulation.scheduler.step, BytecodeCounter(), 0

    def counted(now, events):
        nonlocal steps
        steps += 1
        if steps % 8:
            return step(now, events)
        with counter:
            return step(now, events)

    simulation.scheduler.step = counted
    for _ in simulation.moments():
        pass
    return 8 * counter.count / overview.calls


def test_a_call_costs_about_the_same_on_twenty_and_on_eighty_nodes():
    few, many = bytecodes_per_call(NODES), bytecodes_per_call(4 * NODES)
    assert many <= 1.4 * few, f"{few:.0f} bytecodes on {NODES} nodes, {many:.0f} on {4 * NODES}"
