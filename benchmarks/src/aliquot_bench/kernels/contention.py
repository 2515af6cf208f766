"""Contention on a real server: clients of eight tenants in a closed loop, whose weights exceed four virtual devices."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier

import httpx

from aliquot.core.units import MIB
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot.testing.client import CallError, NamespaceClient
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import scratch
from aliquot_bench.kernels.graphs import worker
from aliquot_bench.kernels.part import KernelSizes
from aliquot_bench.kernels.platform import TIMEOUT_S, body_of, call, deploy
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_least, at_most

TENANTS, DEVICES = 8, 4
WEIGHT_BYTES = 48 * MIB
FITTING = 7.5  # clients on a device
ROUNDS = 100_000  # of a call, about 20 ms of a core
OURS, WORST = "fair_resident", "balance"
PACED = ("--device-bandwidth", "256MiB")  # so that a load takes 190 ms
WARM_UP_CALLS = 3  # of each client, before the calls of all are counted
OPTIONS: dict[str, tuple[str, ...]] = {"balance": ("--eviction", "lru")}
PUBLISHED = {28: 88.0, 32: 16.0}


class ContentionPart:
    """The part `contention`."""

    name = "contention"

    def __init__(self, sizes: KernelSizes) -> None:
        self._sizes = sizes
        self._rates: dict[str, dict[int, float]] = {policy: {} for policy in sizes.policies}
        self._failed: dict[str, dict[int, float]] = {policy: {} for policy in sizes.policies}
        self.steps = 1 + len(sizes.policies) * len(sizes.clients)

    def run(self, on_step: Callable[[str], None]) -> None:
        most = max(self._sizes.clients)
        with scratch() as folder:
            on_step(f"{most} graphs of {TENANTS} tenants are deployed")
            with LiveServer(folder / "data", *_options(OURS)) as server:
                keys = [server.create_namespace(f"tenant-{number}") for number in range(TENANTS)]
                for number in range(most):
                    with server.client(keys[number % TENANTS], timeout=TIMEOUT_S) as client:
                        deploy(client, f"client-{number}", *worker(WEIGHT_BYTES, ROUNDS, number))
                server.stop()
            for policy in self._sizes.policies:
                with LiveServer(folder / "data", *_options(policy)) as server, _clients(server, keys) as clients:
                    for number in self._sizes.clients:
                        on_step(f"{policy} with {number} clients")
                        self._measure(policy, clients, number)

    def _measure(self, policy: str, clients: Sequence[NamespaceClient], number: int) -> None:
        body = body_of({})
        warm = Barrier(number)

        def load(client: int) -> tuple[int, int]:
            tenant = clients[client % len(clients)]
            for _ in range(WARM_UP_CALLS):
                call(tenant, f"client-{client}", body)
            warm.wait(TIMEOUT_S)
            begin = time.monotonic()
            return _loop(tenant, f"client-{client}", begin + self._sizes.client_s)

        with ThreadPoolExecutor(number) as threads:
            done = list(threads.map(load, range(number)))
        self._rates[policy][number] = sum(calls for calls, _ in done) / self._sizes.client_s
        self._failed[policy][number] = sum(failed for _, failed in done)

    def goals(self) -> Sequence[Goal]:
        ours, worst = self._rates[OURS], self._rates[WORST]
        peak = max(rate for rates in self._rates.values() for rate in rates.values())
        name = "contention: part of the peak with {} clients, " + OURS
        return [
            at_least(name.format(28), PERCENT * ours[28] / peak, 95, "%"),
            at_least(name.format(32), PERCENT * ours[32] / peak, 60, "%"),
            at_most("contention: the same with 32 clients, balance + lru", PERCENT * worst[32] / peak, 40, "%"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [" + ".join([policy, *OPTIONS.get(policy, ())[1:]]), *rates.values(), sum(self._failed[policy].values())]
            for policy, rates in self._rates.items()
        ]
        rows.append(["Kernels as a Service (published)", *(PUBLISHED.get(n) for n in self._sizes.clients), None])
        columns = ["", *(f"{number} clients" for number in self._sizes.clients), "failed calls"]
        each = f"{WEIGHT_BYTES // MIB} MiB each"
        title = f"Contention: calls a second, in a closed loop of clients of {TENANTS} tenants with {each}"
        assumed = f"{DEVICES} virtual devices that share this machine's cores, with 256 MiB a second each"
        return [ResultTable(title, columns, rows, assumed)]

    def panels(self) -> Sequence[PlotPanel]:
        lines = [PlotLine(policy, list(rates), list(rates.values())) for policy, rates in self._rates.items()]
        return [PlotPanel("Contention", "clients", "calls a second", lines)]


def _options(policy: str) -> tuple[str, ...]:
    device_mib = round(FITTING * WEIGHT_BYTES / MIB)
    devices = ("--devices", f"host:{DEVICES}", "--device-memory", f"{device_mib}MiB", "--slots", "2", *PACED)
    return ("--python", sys.executable, "--policy", policy, *OPTIONS.get(policy, ()), *devices)


@contextmanager
def _clients(server: LiveServer, keys: Sequence[str]) -> Iterator[list[NamespaceClient]]:
    """Open a client for each tenant. Client `n` of the load is one of tenant `n` modulo their number."""
    with ExitStack() as stack:
        limits = httpx.Limits(max_connections=None)
        yield [stack.enter_context(server.client(key, timeout=TIMEOUT_S, limits=limits)) for key in keys]


def _loop(client: NamespaceClient, name: str, end: float) -> tuple[int, int]:
    """Call a graph until the end. Return the calls that have ended by then, and those that failed."""
    body, done, failed = body_of({}), 0, 0
    while time.monotonic() < end:
        try:
            call(client, name, body)
        except CallError:
            failed += 1
        else:
            done += time.monotonic() < end
    return done, failed
