"""Nodes that hold a function's data are preferred, as a cost among others."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.events import DatasetHeld, NodeJoined
from aliquot.core.model import DeviceSpec, NodeSpec
from aliquot.core.units import GIB
from aliquot.testing import Harness, function
from aliquot.testing.harness import dispatched

BANDWIDTH = 10**9  # bytes per second
COLD_S, RUN_S = 1, 30
FUNCTION = function("f", run_s=RUN_S, cold_s=COLD_S, memory_bytes=1, datasets=("d",))
TOGETHER = 1.3  # how many times longer two calls at once are expected to take, before anything is measured

sizes = st.lists(st.integers(0, 60).map(lambda seconds: seconds * BANDWIDTH), min_size=2, max_size=5)


def cluster(policy, held):
    """Join a node with one device for each size, which is the number of bytes that it holds of the dataset."""
    harness = Harness(policy, devices=[], functions=[FUNCTION], keepalive="none")
    for number in range(len(held)):
        node = f"n{number}"
        device = DeviceSpec(f"{node}/gpu", memory_bytes=GIB, node=node)
        harness.send(NodeJoined(NodeSpec(node, bandwidth_bytes_s=BANDWIDTH), (device,)))
    hold(harness, held)
    return harness


def hold(harness, held):
    harness.send(*(DatasetHeld(f"n{number}", "d", size) for number, size in enumerate(held)))


def missing_s(harness, number):
    """Return the seconds to bring what the node lacks, as the view has it."""
    flow = harness.flow("f")
    device = harness.scheduler.registry.devices[f"n{number}/gpu"]
    return flow.domain.view.data_s(flow, device)


def place(commands):
    ((_, name, start),) = dispatched(commands)
    return int(name.removeprefix("n").removesuffix("/gpu")), start


@given(sizes)
def test_a_new_sandbox_starts_where_starting_running_and_bringing_the_data_take_least(held):
    harness = cluster("fair_resident", held)
    running = dict.fromkeys(range(len(held)), 0)
    for _ in range(2 * len(held)):
        costs = {
            number: RUN_S * (TOGETHER if count else 1) + missing_s(harness, number)
            for number, count in running.items()
            if count < 2
        }
        commands = harness.call("f")
        chosen, start = place(commands)
        harness.ready(commands)
        assert start == "cold"
        assert costs[chosen] <= min(costs.values()) + 1e-6, costs
        running[chosen] += 1


@given(sizes, sizes)
def test_of_two_warm_sandboxes_the_one_nearer_to_the_data_is_used_and_no_other_is_started_for_them(held, later):
    harness = cluster("fair_resident", held)
    for _ in range(2):
        harness.ready(harness.call("f"))
    warm = {harness.scheduler.invocations[invocation].device.spec.node for invocation in ("0", "1")}
    for invocation in ("0", "1"):
        harness.finish(invocation, run_s=RUN_S, at=harness.now + RUN_S)
    hold(harness, later[: len(held)])
    chosen, start = place(harness.call("f"))
    assert start == "warm"  # however much is missing there: a call is moved to data, but never starts again for them
    assert missing_s(harness, chosen) == min(missing_s(harness, int(node.removeprefix("n"))) for node in warm)


@given(sizes)
def test_other_policies_choose_the_node_with_the_most_data_among_equal_ones(held):
    for policy in ("fcfs", "batch"):
        harness = cluster(policy, held)
        chosen, _ = place(harness.call("f"))
        assert missing_s(harness, chosen) == min(missing_s(harness, number) for number in range(len(held)))
