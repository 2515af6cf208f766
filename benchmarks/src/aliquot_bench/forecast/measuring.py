"""One simulation of a workload under one keep-alive policy: calls that waited for a start, and idle memory."""

from collections.abc import Mapping

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.commands import Start
from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.collecting import few_collections
from aliquot.sim.engine import Scenario, Simulation
from aliquot.sim.importers.azure_functions import MINUTE_S
from aliquot_bench.forecast.workload import MinuteWorkload

DEVICE = DeviceSpec("gpu-1", memory_bytes=10**6 * GIB, concurrency=10_000)  # the memory is bounded by policies alone
HOUR_S = 3600


class KeepAliveResult(Struct, frozen=True):
    """The second half of a workload under one policy."""

    policy: str
    setting: str  # the value that is varied along a curve
    waited: int  # calls that waited for a cold start or a swap-in
    idle_gib_h: float  # memory of sandboxes without a call, integrated over time
    starts: int  # of sandboxes, for calls and ahead of them


class IdleMemory:
    """The device memory of idle sandboxes, integrated over time from one moment on."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s
        self._at_s = 0.0
        self._bytes = 0
        self.byte_s = 0.0

    def step(self, now: float, idle_bytes: int) -> None:
        """Count the time since the last step with the bytes that were idle after it."""
        passed_s = now - max(self._at_s, self._since_s)
        if passed_s > 0:
            self.byte_s += passed_s * self._bytes
        self._at_s, self._bytes = now, idle_bytes


def measure(
    work: MinuteWorkload,
    keepalive: str,
    params: Mapping[str, str],
    *,
    setting: str,
    eviction: str = "lru",
    host_bytes: int | None = None,
) -> KeepAliveResult:
    """Simulate the whole workload, and measure its second half."""
    settings = PolicySettings("fcfs", keepalive, eviction, params={keepalive: dict(params)})
    scenario = Scenario([DEVICE], work.functions, work.workload, host_memory_bytes=host_bytes)
    simulation = Simulation(scenario, settings, work.workload.overview(), QUEUEING, None)
    idle, end_s = IdleMemory(work.half_s), work.minutes * MINUTE_S
    began, started, waited = False, 0, 0
    with few_collections():
        for now in simulation.moments():
            if now > end_s:
                break
            device = simulation.scheduler.registry.devices[DEVICE.name]
            idle.step(now, device.evictable_bytes)
            if not began and now >= work.half_s:
                began = True
                started, waited = simulation.scheduler.pool.started, _waited(simulation)
    idle.step(end_s, 0)
    name = f"{keepalive} with {eviction}" if host_bytes is not None else keepalive
    starts = simulation.scheduler.pool.started - started
    return KeepAliveResult(name, setting, _waited(simulation) - waited, idle.byte_s / GIB / HOUR_S, starts)


def _waited(simulation: Simulation) -> int:
    """Return how many calls have waited for a cold start or a swap-in so far."""
    return sum(
        record.starts[Start.COLD] + record.starts[Start.SWAP_IN] for record in simulation.recorder.flows.values()
    )
