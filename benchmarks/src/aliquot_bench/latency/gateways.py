"""The processor time of a warm call with gateway processes, in each kind of process."""

from collections.abc import Callable

import psutil  # type: ignore[import-untyped]
from msgspec import Struct

from aliquot_bench.environments import scratch
from aliquot_bench.latency.platform import NO_OP, LatencyPlatform, up
from aliquot_bench.latency.process import ServerError, answers
from aliquot_bench.latency.targets import CALLERS, WARM_S
from aliquot_bench.latency.wrk import run_wrk

COUNTS = (1, 2, 4)  # of gateway processes; 1: the server reads HTTP itself
_MODULE = "aliquot.live.gateway.processes.process"


class GatewayFigures(Struct, frozen=True):
    """The processor time of one call, by process, in microseconds."""

    gateways: int
    per_second: float
    server_us: float  # in the process that schedules
    gateways_us: float  # in all gateway processes together
    others_us: float  # in sandboxes and other processes

    @property
    def all_us(self) -> float:
        return self.server_us + self.gateways_us + self.others_us

    @property
    def most_per_second(self) -> float:
        """The calls that the process that schedules could make with a core for itself."""
        return 1e6 / self.server_us if self.server_us else 0.0


def measure_gateways(seconds: float, rounds: int, on_step: Callable[[str], None]) -> list[GatewayFigures]:
    """Measure all counts in turn, and return the figures of the round with the median time of the server."""
    found: dict[int, list[GatewayFigures]] = {count: [] for count in COUNTS}
    for number in range(rounds):
        for count in COUNTS:
            on_step(f"gateway processes, round {number + 1} of {rounds}: {count}")
            found[count].append(_measure(count, seconds))
    return [sorted(each, key=lambda one: one.server_us)[len(each) // 2] for each in found.values()]


def _measure(count: int, seconds: float) -> GatewayFigures:
    with scratch() as folder, up(folder, options=("--gateways", str(count))) as platform:
        platform.deploy("noop", NO_OP)
        endpoint = platform.endpoint(["noop"])
        if not answers(endpoint):
            raise ServerError(f"the no-op does not answer with {count} gateway processes")
        run_wrk(endpoint, folder, connections=CALLERS, seconds=WARM_S)
        before = _times(platform)
        report = run_wrk(endpoint, folder, connections=CALLERS, seconds=seconds)
        used = {name: now - before.get(name, 0.0) for name, now in _times(platform).items()}
        if report.errors:
            raise ServerError(f"{report.errors} error answers with {count} gateway processes")
        server, gateways, others = (1e6 * used.get(name, 0.0) / report.requests for name in ("server", "gateway", ""))
        return GatewayFigures(count, report.per_second, server, gateways, others)


def _times(platform: LatencyPlatform) -> dict[str, float]:
    """Return the processor time so far by kind of process: `server`, `gateway`, or empty for the others."""
    found: dict[str, float] = {}
    for process in platform.server.processes():
        try:
            name = "server" if process.pid == platform.pid else "gateway" if _MODULE in process.cmdline() else ""
            times = process.cpu_times()
        except psutil.Error:  # it has ended
            continue
        found[name] = found.get(name, 0.0) + times.user + times.system
    return found
