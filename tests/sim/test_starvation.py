"""Large calls among small ones that keep coming: nobody waits until the stream is over."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate

LAST_S = 200


def wait_of_large(policy, large, small, devices):
    """How long one large call waits among overlapping small ones."""
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
