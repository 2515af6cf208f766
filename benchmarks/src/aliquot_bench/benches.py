"""The table of benchmarks. Each claim in the documents names the command that measures it."""

from collections.abc import Callable

from aliquot_bench import (
    console,
    eviction,
    fairness,
    forecast,
    kernels,
    latency,
    nodes,
    prediction,
    prefetch,
    profile,
    sdk,
    sharing,
    simulator,
    slo,
    views,
    workflow,
)
from aliquot_bench.base import Bench, BenchRequest

BENCHES: dict[str, Callable[[BenchRequest], Bench]] = {
    "cluster": nodes.ClusterBench,
    "console": console.ConsoleBench,
    "eviction": eviction.EvictionBench,
    "fairness": fairness.FairnessBench,
    "forecast": forecast.ForecastBench,
    "kernels": kernels.KernelsBench,
    "latency": latency.LatencyBench,
    "prediction": prediction.PredictionBench,
    "prefetch": prefetch.PrefetchBench,
    "profile": profile.ProfileBench,
    "sdk": sdk.SdkBench,
    "sharing": sharing.SharingBench,
    "sim": simulator.SimulatorBench,
    "slo": slo.SloBench,
    "views": views.ViewsBench,
    "workflow": workflow.WorkflowBench,
}
