"""Tests of starvation: a large call among a steady stream of small ones does not wait for its end."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate

LAST_S = 200


def wait_of_large(policy, large, small, devices):
    """Return how long one large call waits among overlapping small ones."""
    arrivals = [Arrival(half / 2, "small") for half in range(2 * LAST_S)] + [Arrival(0.1, "large")]
    scenario = Scenario(devices, {"large": large, "small": small}, ListedWorkload(arrivals), check=True)
    lines = []
    simulate(scenario, PolicySettings(policy), on_dispatch=lines.append)
    return next(line.time_s for line in lines if line.function == "large")


@pytest.mark.parametrize("policy", ["balance", "eedf", "fair_resident", "fcfs", "mqfq_sticky", "round_robin"])
def test_a_large_share_is_not_starved_by_small_ones(policy):
    large, small = (FunctionSpec(name, 1, share, Times(1, 0, 0)) for name, share in (("large", 1), ("small", 0.5)))
    assert wait_of_large(policy, large, small, [DeviceSpec("gpu-1", memory_bytes=10)]) < LAST_S / 4


@pytest.mark.parametrize("policy", ["affinity", "balance", "exclusive", "fair_resident", "fcfs", "mqfq_sticky"])
def test_a_large_memory_is_not_starved_by_small_ones(policy):
    large, small = (FunctionSpec(name, size, None, Times(1, 0, 0)) for name, size in (("large", 8), ("small", 1)))
    devices = [DeviceSpec("gpu-1", memory_bytes=1, concurrency=1), DeviceSpec("gpu-2", memory_bytes=8)]
    assert wait_of_large(policy, large, small, devices) < LAST_S / 4


# Affinity, as published, restarts empty flows at the smallest virtual time, so other flows starve.
@pytest.mark.parametrize("takes", [2, 3])
@pytest.mark.parametrize("policy", sorted(set(QUEUEING) - {"affinity"}))
def test_whole_devices_are_not_starved_by_slices(policy, takes):
    """Run ten calls that need two or three whole devices, while slices of four functions fill nine tenths of them."""
    slices = {f"f{number}": FunctionSpec(f"f{number}", 1, 0.3, Times(1, 0, 0)) for number in range(4)}
    arrivals = [Arrival(tick / 8, f"f{tick % 4}") for tick in range(8 * LAST_S)]
    arrivals += [Arrival(number + 0.1, "whole") for number in range(10)]
    scenario = Scenario(
        [DeviceSpec(f"gpu-{number}", memory_bytes=4, concurrency=4) for number in range(3)],
        {**slices, "whole": FunctionSpec("whole", 2, takes, Times(1, 0, 0))},
        ListedWorkload(arrivals),
        check=True,
    )
    lines = []
    simulate(scenario, PolicySettings(policy), on_dispatch=lines.append)
    whole = [line for line in lines if line.function == "whole"]
    assert len(whole) == 10
    assert {len(line.device.split(",")) for line in whole} == {takes}
    assert max(line.time_s for line in whole) < LAST_S / 2
