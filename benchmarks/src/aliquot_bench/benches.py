"""The table of benchmarks: one file or folder for each. Every claim has a command that reproduces it."""

from collections.abc import Callable

from aliquot_bench import eviction, fairness, latency, prediction, prefetch, sharing, simulator, views
from aliquot_bench.base import Bench, BenchRequest

BENCHES: dict[str, Callable[[BenchRequest], Bench]] = {
    "eviction": eviction.EvictionBench,
    "fairness": fairness.FairnessBench,
    "latency": latency.LatencyBench,
    "prediction": prediction.PredictionBench,
    "prefetch": prefetch.PrefetchBench,
    "sharing": sharing.SharingBench,
    "sim": simulator.SimulatorBench,
    "views": views.ViewsBench,
}
