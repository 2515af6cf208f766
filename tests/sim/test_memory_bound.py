"""Devices whose memory is full: the policy must not spend the devices' time on moving memory."""

import pytest

from aliquot.assemble import assemble
from aliquot.cli.simulate import _runs
from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report
from aliquot_bench.fairness.memory_bound import completed_part, longest_wait, memory_bound

DURATION_S = 30


def run(policy, scenario, **settings):
    settings = PolicySettings(policy, pool_slots=0, **settings)
    return report(policy, 0, simulate(scenario, settings), scenario.devices)


@pytest.mark.parametrize(("clients", "part"), [(28, 0.97), (32, 0.87), (48, 0.6)])
def test_fair_resident_does_not_thrash_where_memory_is_tight(clients, part):
    scenario = memory_bound(clients, 1, DURATION_S)
    ours, affinity = run("fair_resident", scenario), run("affinity", scenario)
    assert completed_part(ours, DURATION_S) >= part
    assert ours.swap_ins <= affinity.swap_ins
    assert longest_wait(ours) <= 3
    assert ours.fairness.jain >= 0.95


def test_a_bound_on_host_memory_stops_idle_sandboxes():
    functions = {name: FunctionSpec(name, GIB, times=Times(1, 2, 0.5)) for name in ("a", "b", "c")}
    arrivals = [Arrival(10 * turn, name) for turn, name in enumerate("abcabc")]
    devices = [DeviceSpec("gpu-1", memory_bytes=16 * GIB)]

    def cold_starts(host_memory_bytes):
        workload = ListedWorkload(arrivals)
        scenario = Scenario(devices, functions, workload, check=True, host_memory_bytes=host_memory_bytes)
        return run("fcfs", scenario).cold_starts

    assert cold_starts(None) == 3
    assert cold_starts(3 * GIB) == 3
    assert cold_starts(2 * GIB) == 6  # each stops the one that comes next


@pytest.mark.parametrize(
    ("policies", "asked", "pool_slots"),
    [("fcfs,mqfq_sticky,fair_resident", None, 16), ("fcfs,fair_resident", None, 0), ("fcfs,mqfq_sticky", 5, 5)],
)
def test_policies_that_are_compared_get_the_same_pool(policies, asked, pool_slots):
    runs = _runs(policies, "threshold", "accept_all", "0", PolicySettings("", pool_slots=asked))
    assert {run.pool_slots for run in runs} == {pool_slots}
    assert {assemble(run).pool.slots for run in runs} == {pool_slots or None}
