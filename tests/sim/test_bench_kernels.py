"""The benchmark of kernels: its graphs are right, and its simulated part compares with the published curve."""

import json

import pytest

from aliquot.kernels.check import check_graph
from aliquot.kernels.counters import count_run
from aliquot.kernels.plan import plan_memory
from aliquot.kernels.reading import read_graph
from aliquot_bench.kernels.contention import FITTING, WEIGHT_BYTES
from aliquot_bench.kernels.counters import EXPECTED, CountersPart
from aliquot_bench.kernels.graphs import addition, gemm_chain, worker
from aliquot_bench.kernels.part import KernelSizes, exactly
from aliquot_bench.kernels.simulated import SimulatedPart

SMALL = KernelSizes(simulated_s=4, simulated_seeds=1)


@pytest.mark.parametrize(
    "document", [gemm_chain(256)[0], addition(), worker(4096, 10, 1)[0]], ids=["gemm", "add", "work"]
)
def test_the_graphs_are_right(document):
    assert check_graph(read_graph(json.dumps(document))) == []


def test_seven_clients_fit_on_a_device_and_eight_do_not():
    plan = plan_memory(read_graph(json.dumps(worker(WEIGHT_BYTES, 10, 1)[0])))
    assert 7 * plan.memory_bytes + plan.run_bytes <= FITTING * WEIGHT_BYTES < 8 * plan.memory_bytes


def test_the_expected_counters_are_those_that_are_computed():
    graph = read_graph(json.dumps(gemm_chain(1024)[0]))
    found = count_run(graph)
    assert (found.misses, found.hits, found.kernel_misses, found.kernel_hits, found.bytes_in) == EXPECTED["cold"][:5]
    assert not exactly("misses", found.misses + 1, 13).met


def test_the_simulated_part_compares_policies_with_the_published_curve():
    part = SimulatedPart(SMALL)
    steps = []
    part.run(steps.append)
    assert len(steps) == part.steps
    ours, _, worst, published = part.tables()[0].rows
    assert all(ours[clients] > 1.5 * worst[clients] for clients in (1, 2, 3))
    assert published[1:4] == [88.0, 16.0, None]
    assert [goal.goal for goal in part.goals()] == [95, 75, 50]


@pytest.mark.long
def test_the_counters_of_a_real_device_are_the_published_ones():
    part = CountersPart(SMALL)
    part.run(lambda _: None)
    assert all(goal.met for goal in part.goals())
