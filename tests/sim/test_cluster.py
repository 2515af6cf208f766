"""A cluster of equal nodes serves its calls as well as nodes that each have a scheduler of their own."""

from aliquot_bench.cluster import SeparateNodes, simulate_cluster

NODES = 20  # 80 devices, so that decisions look at a few of them
DURATION_S = 40


def test_a_cluster_is_as_fair_and_as_busy_as_separate_nodes():
    separate = SeparateNodes(NODES, "fair_resident", DURATION_S)
    together = simulate_cluster(NODES, "fair_resident", DURATION_S)
    assert together.completed == separate.completed
    assert together.completed / together.makespan_s / NODES >= 0.95 * separate.per_second
    assert together.fairness.jain >= 0.95 * separate.jain
    assert together.latency_s.mean <= 1.05 * separate.mean_s
