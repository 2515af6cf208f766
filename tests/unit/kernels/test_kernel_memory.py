"""The memory plan and the counters of the chain of products whose figures are published, to the byte."""

import pytest
from kernel_graphs import gemm_chain, graph_of

from aliquot.kernels.counters import KernelCounters, count_run
from aliquot.kernels.plan import plan_memory

MATRIX = 1024 * 1024 * 4


@pytest.fixture(scope="module")
def chain():
    return graph_of(gemm_chain()[0])


def test_the_chain_keeps_its_constants_and_needs_two_matrices_while_it_runs(chain):
    plan = plan_memory(chain)
    assert (plan.memory_bytes, plan.run_bytes) == (16_778_240, 8_388_608)
    assert plan.zeroed == {0: ("t1",), 1: ("t2",), 2: ("t3",), 3: ("y",)}


def test_a_graph_that_repeats_itself_shares_no_space():
    document, _ = gemm_chain(size=16)
    plan = plan_memory(graph_of(document | {"iterations": 2}))
    assert plan.run_bytes == 5 * 1024
    assert plan.zeroed == {0: ("y", "t1", "t2", "t3")}


def test_the_first_call_loads_everything_and_the_next_only_its_input(chain):
    cold = count_run(chain)
    assert cold == KernelCounters(3, 13, 3, 1, 20_971_648, MATRIX, 4 * MATRIX, 1)
    constants = {buffer.sha256 for buffer in chain.named("const").values()}
    warm = count_run(chain, constants=constants, compiled={("p", "gemm")})
    assert warm == KernelCounters(11, 5, 4, 0, MATRIX, MATRIX, 4 * MATRIX, 1)


def test_equal_constants_are_loaded_once():
    document, _ = gemm_chain(equal_sizes=True)
    counters = count_run(graph_of(document))
    assert (counters.misses, counters.hits) == (10, 6)


def test_an_input_that_stayed_on_the_device_is_not_moved(chain):
    constants = {buffer.sha256 for buffer in chain.named("const").values()}
    counters = count_run(chain, constants=constants, inputs={"x"}, kept_outputs={"y"})
    assert (counters.misses, counters.hits, counters.bytes_in, counters.bytes_out) == (4, 12, 0, 0)


def test_later_iterations_hit(chain):
    counters = count_run(chain, iterations=10)
    assert (counters.misses, counters.hits) == (13, 10 * 16 - 13)
    assert (counters.kernel_misses, counters.kernel_hits) == (1, 39)
