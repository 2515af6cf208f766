"""Bursts of calls at regular times on real servers: cold starts, latency, and the seconds that sandboxes are there.

The same bursts go to three servers at once. One holds sandboxes for forecasts, one keeps them for a moment only, and
one always has enough. A random caller beside them shows what forecasts of others cost it.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random
from statistics import quantiles
from threading import Event, Thread
from typing import Any

from aliquot.testing.client import NamespaceClient, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import scratch
from aliquot_bench.result import MEASURED, PERCENT, Goal, ResultTable, at_least, at_most

AT_ONCE = 4
START_S = 1.0  # that the import takes, without work for the processor
RUN_S = 0.2
STEPS_PER_PERIOD = 5
SAMPLE_S = 0.1
PRICE = 10  # seconds that a GiB must save in a minute; at the default price, steps of seconds hold all the time
RANDOM_GAP_S = 6.0  # mean time between calls of the random caller
BURST = f"import time\ntime.sleep({START_S})\ndef main(args):\n    time.sleep({RUN_S})\n    return {{}}\n"
RANDOM = "import time\ntime.sleep(0.2)\ndef main(args):\n    time.sleep(0.05)\n    return {}\n"

KEPT = ("--keepalive", "fixed_ttl", "--set", "fixed_ttl.ttl_s=0.5")
FORECAST, SHORT, WARM = "forecast", "kept for 0.5 s", "always warm"


class BurstSizes:
    """The number of bursts, and the time between them."""

    period_s = 20.0
    learned = 16  # bursts before measuring
    measured = 20

    @property
    def step_s(self) -> float:
        return self.period_s / STEPS_PER_PERIOD


class BurstServer:
    """One server, with what its callers saw."""

    def __init__(self, name: str, *options: str, warm: int = 0) -> None:
        self.name = name
        self.options = options
        self.warm = warm
        self.cold = self.calls = 0
        self.latency_s: list[float] = []
        self.random_s: list[float] = []
        self.sandbox_s = 0.0

    def run(self, sizes: BurstSizes, begins: float) -> None:
        """Call in bursts from that time on."""
        with scratch() as folder, LiveServer(folder / "data", *self.options) as server:
            more = {"warm": self.warm} if self.warm else {}
            server.deploy("burst", BURST, annotations=to_pairs(more))
            server.deploy("random", RANDOM)
            over = Event()
            measured_at = begins + sizes.learned * sizes.period_s
            beside = [
                Thread(target=self._sample, args=(server, measured_at, over)),
                Thread(target=self._call_randomly, args=(server, measured_at, over)),
            ]
            for thread in beside:
                thread.start()
            try:
                self._burst(server, sizes, begins)
            finally:
                over.set()
                for thread in beside:
                    thread.join()

    def _burst(self, server: LiveServer, sizes: BurstSizes, begins: float) -> None:
        with server.client() as client, ThreadPoolExecutor(AT_ONCE) as pool:
            for number in range(sizes.learned + sizes.measured):
                time.sleep(max(0.0, begins + number * sizes.period_s - time.monotonic()))
                seen = list(pool.map(lambda _: _call(client, "burst"), range(AT_ONCE)))
                if number >= sizes.learned:
                    self.latency_s += [latency_s for latency_s, _ in seen]
                    self.cold += sum(cold for _, cold in seen)
                    self.calls += len(seen)
            time.sleep(max(0.0, begins + (number + 1) * sizes.period_s - time.monotonic()))

    def _sample(self, server: LiveServer, measured_at: float, over: Event) -> None:
        """Count the sandboxes of the function again and again."""
        last = time.monotonic()
        while not over.wait(SAMPLE_S):
            found = server.operate("GET", "status")["sandboxes"]
            now = time.monotonic()
            if now >= measured_at:
                self.sandbox_s += (now - last) * sum(one["function"] == "burst" for one in found)
            last = now

    def _call_randomly(self, server: LiveServer, measured_at: float, over: Event) -> None:
        random = Random(1)
        with server.client() as client:
            while not over.wait(random.expovariate(1 / RANDOM_GAP_S)):
                now = time.monotonic()
                latency_s, _ = _call(client, "random")
                if now >= measured_at:
                    self.random_s.append(latency_s)


def _call(client: NamespaceClient, name: str) -> tuple[float, bool]:
    """Call a function, and return how long it took, and whether it began cold."""
    begun = time.perf_counter()
    record: dict[str, Any] = client.call(name, {})
    latency_s = time.perf_counter() - begun
    return latency_s, any(pair["key"] == "initTime" for pair in record["annotations"])


def measure_bursts() -> tuple[list[Goal], ResultTable]:
    """Run the three servers at once, and compare them."""
    sizes = BurstSizes()
    priced = ("--set", f"forecast.step_s={sizes.step_s}", "--set", f"forecast.price={PRICE}")
    servers = [
        BurstServer(FORECAST, *KEPT, "--provisioning", "forecast", *priced),
        BurstServer(SHORT, *KEPT),
        BurstServer(WARM, *KEPT, warm=AT_ONCE),
    ]
    begins = time.monotonic() + 10  # when all are up
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(lambda one: one.run(sizes, begins), servers))
    forecast, short, warm = servers
    hidden = PERCENT * (1 - forecast.cold / short.cold) if short.cold else None
    cost = PERCENT * forecast.sandbox_s / warm.sandbox_s if warm.sandbox_s else None
    goals = [
        at_least(f"live bursts every {sizes.period_s:g} s: cold starts hidden", hidden, 90, "%"),
        at_most("live bursts: sandbox seconds against always warm", cost, 25, "%"),
        at_most("live bursts: p95 against always warm", _p95(forecast.latency_s) / _p95(warm.latency_s), 1.1, "times"),
        at_most(
            "live bursts: p95 of a random caller against none held",
            _p95(forecast.random_s) / _p95(short.random_s),
            1.1,
            "times",
        ),
    ]
    rows: list[list[str | float | None]] = [
        [one.name, one.calls, one.cold, one.sandbox_s, _p95(one.latency_s), _p95(one.random_s)] for one in servers
    ]
    columns = ["sandboxes", "calls", "cold", "sandbox seconds", "p95, s", "p95 of a random caller, s"]
    title = f"Bursts of {AT_ONCE} calls every {sizes.period_s:g} s; a start takes {START_S:g} s"
    return goals, ResultTable(title, columns, rows, MEASURED)


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else float("nan")
