"""The latency of a tenant that competes with a greedy one, which has many functions or a large weight."""

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report

QUIET_EVERY_S, UNTIL_S = 4, 400
GREEDY_EVERY_S = 0.5


def quiet_mean_s(policy: str, *, functions: int = 1, weight: float = 1) -> float:
    """Return the mean latency of a tenant with one function, while another floods the device.

    The other tenant has this many `functions`, each of this `weight`.
    """
    greedy = [FunctionSpec(f"g{number}", 1, times=Times(1, 0, 0), weight=weight) for number in range(functions)]
    quiet = FunctionSpec("quiet", 1, times=Times(1, 0, 0))
    steps = int(UNTIL_S / GREEDY_EVERY_S)
    arrivals = [Arrival(step * GREEDY_EVERY_S, f"g{step % functions}", "greedy") for step in range(steps)]
    arrivals += [Arrival(second, "quiet", "quiet") for second in range(0, UNTIL_S, QUIET_EVERY_S)]
    scenario = Scenario(
        [DeviceSpec("gpu-1", memory_bytes=GIB, concurrency=1)],
        {function.name: function for function in (*greedy, quiet)},
        ListedWorkload(arrivals),
    )
    figures = report(policy, 0, simulate(scenario, PolicySettings(policy)), scenario.devices)
    return figures.per_tenant["quiet"].latency_s.mean or 0
