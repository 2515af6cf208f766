"""Measure calls on other nodes beside calls on the head, and how soon callers learn of a loss.

A server alone and two clusters run beside each other: one with TLS, one without. The heads of the clusters have no
device that the function can use, so all its calls run on nodes. Rounds take turns, so a busy machine meets all alike.
"""

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import uvloop

from aliquot.testing.client import to_pairs
from aliquot.testing.cluster import LiveCluster
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until
from aliquot_bench.base import BenchRequest
from aliquot_bench.nodes.calls import CallConnection, CallTarget, rate_of_callers, times_of_calls
from aliquot_bench.result import MEASURED, BenchResult, Goal, ResultTable, at_least, at_most

ECHO = "def main(args):\n    return {}\n"
SLEEP = "import time\ndef main(args):\n    time.sleep(args.get('s', 0.1))\n    return {}\n"
NEEDS = to_pairs({"gpu-share": 0.04})
RAY_CALL_S = 0.00072  # a call of a bare Ray actor, p50, measured on the machine of these figures without Aliquot
CALLERS = 32
SLEEPERS = 30  # on one node at once
HERE, TLS, TCP = "on the head", "on a node, TLS", "on a node, TCP"


class ClusterBench:
    """Warm calls, throughput, sleepers on three nodes, and the loss of nodes."""

    assumed = MEASURED
    needs_data = False
    steps = 4

    def __init__(self, request: BenchRequest) -> None:
        self._quick = request.quick

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        """Measure calls and losses on real servers, and return the goals."""
        with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as folder, ExitStack() as stack:
            on_step("start a server and two clusters")
            alone = stack.enter_context(LiveServer(Path(folder, "alone"), "--devices", "host:1"))
            tls = stack.enter_context(LiveCluster(Path(folder, "tls"), "--devices", "host:0"))
            tcp = stack.enter_context(LiveCluster(Path(folder, "tcp"), "--devices", "host:0", transport="tcp"))
            for cluster in (tls, tcp):
                cluster.add_node("n1")
            for server in (alone, tls, tcp):
                server.deploy("echo", ECHO, annotations=NEEDS)
                server.deploy("sleep", SLEEP, annotations=NEEDS)
            targets = {
                name: CallTarget.of(server.url, server.key, "echo")
                for name, server in ((HERE, alone), (TLS, tls), (TCP, tcp))
            }
            on_step("warm calls")
            latencies, rates = uvloop.run(self._calls(targets))
            on_step("sleepers on one node and on three")
            one, three = self._sleepers(tcp)
            on_step("nodes that are lost")
            killed, silent = self._losses(tls)
        goals = [*_call_goals(latencies, rates), at_least("sleepers, 3 nodes against 1", three / one, 2.9, "times")]
        goals += [
            at_most("agent killed → callers know, p95", max(killed), 2, "s"),
            at_most("node silent → callers know", max(silent), 11, "s"),
        ]
        tables = [_call_table(latencies, rates), _loss_table(one, three, killed, silent)]
        return BenchResult("cluster", self._quick, goals, tables, self.assumed)

    def draw(self, path: Path) -> None:
        """Draw nothing: the tables say it all."""

    async def _calls(self, targets: dict[str, CallTarget]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the median seconds of a warm call and the calls per second, by place."""
        rounds, calls, seconds = (5, 100, 1.0) if self._quick else (15, 200, 3.0)
        latencies: dict[str, list[float]] = {name: [] for name in targets}
        rates: dict[str, list[float]] = {name: [] for name in targets}
        for target in targets.values():
            await times_of_calls(target, 50)
            await rate_of_callers(target, CALLERS, seconds)
        for _ in range(rounds):
            for name, target in targets.items():
                latencies[name] += await times_of_calls(target, calls)
        for _ in range(rounds):
            for name, target in targets.items():
                rates[name].append(await rate_of_callers(target, CALLERS, seconds))
        return {name: median(all_) for name, all_ in latencies.items()}, {n: median(all_) for n, all_ in rates.items()}

    def _sleepers(self, cluster: LiveCluster) -> tuple[float, float]:
        """Return the calls per second of functions that sleep 100 ms, on one node and on three."""
        target = CallTarget.of(cluster.url, cluster.key, "sleep")
        seconds = 4.0 if self._quick else 15.0

        def rate(nodes: int) -> float:
            callers = nodes * SLEEPERS
            uvloop.run(rate_of_callers(target, callers, 3.0))  # start the sandboxes
            return uvloop.run(rate_of_callers(target, callers, seconds))

        one = rate(1)
        for name in ("n2", "n3"):
            cluster.add_node(name)
        return one, rate(3)

    def _losses(self, cluster: LiveCluster) -> tuple[list[float], list[float]]:
        """Return the seconds from the end of an agent, and from its silence, until its callers have an answer."""
        number = 3 if self._quick else 20
        killed = [uvloop.run(_until_told(cluster, signal.SIGKILL)) for _ in range(number)]
        silent = [uvloop.run(_until_told(cluster, signal.SIGSTOP)) for _ in range(1 if self._quick else 5)]
        return killed, silent


async def _until_told(cluster: LiveCluster, number: int) -> float:
    """Send a signal to the agent while a call runs there. Return the seconds until its caller has an answer."""
    await asyncio.to_thread(cluster.wait_for_state, "n1", "ready")
    connection = await CallConnection.open(CallTarget.of(cluster.url, cluster.key, "sleep"))
    await connection.call(s=0)
    call = asyncio.ensure_future(connection.call(s=30))
    await asyncio.to_thread(wait_until, lambda: _running(cluster), what="the call to run")
    agent = cluster.nodes["n1"]
    agent.signal_agent(number)
    begun_s = time.perf_counter()
    await call
    told_s = time.perf_counter() - begun_s
    if number == signal.SIGSTOP:
        agent.signal_agent(signal.SIGCONT)
        await asyncio.to_thread(cluster.wait_for_state, "n1", "joining", "ready")
    connection.close()
    return told_s


def _running(cluster: LiveCluster) -> int:
    return sum(device["running"] for device in cluster.operate("GET", "status")["devices"])


def _call_goals(latencies: dict[str, float], rates: dict[str, float]) -> list[Goal]:
    part = {name: (latencies[name] - latencies[HERE]) / RAY_CALL_S for name in (TLS, TCP)}
    return [
        at_most("beyond a call on the head, TLS, of a Ray actor's call", part[TLS], 1 / 5),
        at_most("beyond a call on the head, TCP, of a Ray actor's call", part[TCP], 1 / 8),
        at_least(f"calls per second with {CALLERS} callers, TLS, of the head's", rates[TLS] / rates[HERE], 0.65),
        at_least(f"calls per second with {CALLERS} callers, TCP, of the head's", rates[TCP] / rates[HERE], 0.85),
    ]


def _call_table(latencies: dict[str, float], rates: dict[str, float]) -> ResultTable:
    rows: list[list[str | float | None]] = [
        [name, round(latencies[name] * 1e6), round(rates[name])] for name in (HERE, TLS, TCP)
    ]
    return ResultTable("warm calls", ["where", "p50, µs", f"calls/s, {CALLERS} callers"], rows)


def _loss_table(one: float, three: float, killed: list[float], silent: list[float]) -> ResultTable:
    rows: list[list[str | float | None]] = [
        ["sleepers of 100 ms on 1 node, calls/s", one],
        ["on 3 nodes, calls/s", three],
        ["agent killed → callers know, median s", median(killed)],
        ["node stopped (SIGSTOP) → callers know, median s", median(silent)],
    ]
    return ResultTable("several nodes, and their loss", ["what", "value"], rows)
