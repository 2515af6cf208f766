"""Benchmarks: claims, each with the command that reproduces it. One file or folder a benchmark; the table is here."""

from collections.abc import Callable

from aliquot.bench import eviction, fairness, latency, prediction, prefetch, sharing, simulator, views
from aliquot.bench.run import Bench, Request

BENCHES: dict[str, Callable[[Request], Bench]] = {
    "eviction": eviction.EvictionBench,
    "fairness": fairness.FairnessBench,
    "latency": latency.LatencyBench,
    "prediction": prediction.PredictionBench,
    "prefetch": prefetch.PrefetchBench,
    "sharing": sharing.SharingBench,
    "sim": simulator.SimulatorBench,
    "views": views.ViewsBench,
}
