"""The load of three tenants. Each has one or more threads that call a function at seeded random intervals.

All functions ask for a quarter of the one device, so four run at once. The greedy tenant always has calls that wait.
"""

import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import httpx
from msgspec import Struct

from aliquot.testing.client import NamespaceClient, from_pairs


class CallSample(Struct, frozen=True):
    """One call as its caller measured it, and fields of its activation record."""

    tenant: str
    at_s: float  # since the load began
    latency_s: float
    ok: bool
    cold: bool
    wait_s: float
    device: str


class DemoTenant(Struct, frozen=True):
    """A tenant with the function that it calls and the pace of its calls."""

    name: str
    pattern: str  # arrival pattern, for the table
    action: str
    payload: Callable[[Random], dict[str, Any]]
    gaps: Callable[[Random], Iterator[float]]  # seconds between two calls of one caller
    callers: int = 1
    options: tuple[str, ...] = ()  # of its deployment


def _bursts(random: Random) -> Iterator[float]:
    while True:
        for _ in range(random.randrange(15, 30)):
            yield random.expovariate(40)
        yield random.uniform(0.5, 1.5)


def _steady(random: Random) -> Iterator[float]:
    while True:
        yield random.expovariate(25)


def _greedy(_: Random) -> Iterator[float]:
    while True:
        yield 0.0


def _picture(random: Random) -> dict[str, Any]:
    return {"image": [[random.random() for _ in range(12)] for _ in range(12)]}


TENANTS = (
    DemoTenant("shop", "bursts", "classifier.describe", _picture, _bursts, callers=2),
    DemoTenant(
        "lab", "as much as it can", "matrix.trace", lambda random: {"size": random.choice([100, 200, 300])}, _greedy, 8
    ),
    DemoTenant(
        "edge",
        "steady",
        "echo",
        lambda random: {"reading": random.random()},
        _steady,
        options=("--annotation", "gpu-share=0.25"),
    ),
)


def run_load(url: str, keys: dict[str, str], seconds: float, seed: int = 0) -> list[CallSample]:
    """Let all tenants call at the same time for so many seconds, and return all calls in order of their start."""
    samples: list[CallSample] = []
    began = time.monotonic()

    def work(tenant: DemoTenant, random: Random) -> None:
        with NamespaceClient(url, keys[tenant.name]) as client:
            for gap_s in tenant.gaps(random):
                time.sleep(gap_s)
                at_s = time.monotonic() - began
                if at_s >= seconds:
                    return
                answer = client.post(
                    f"actions/{tenant.action}", params={"blocking": "true"}, json=tenant.payload(random)
                )
                samples.append(_sample(tenant.name, at_s, time.monotonic() - began - at_s, answer))

    threads = [
        threading.Thread(target=work, args=(tenant, Random(f"{seed}/{tenant.name}/{caller}")))
        for tenant in TENANTS
        for caller in range(tenant.callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(samples, key=lambda sample: sample.at_s)


def _sample(tenant: str, at_s: float, latency_s: float, answer: httpx.Response) -> CallSample:
    annotations = from_pairs(answer.json().get("annotations", []))
    return CallSample(
        tenant,
        at_s,
        latency_s,
        answer.status_code == httpx.codes.OK,
        annotations.get("start") == "cold",
        annotations.get("waitTime", 0) / 1000,
        annotations.get("device", "-"),
    )
