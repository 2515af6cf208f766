"""Benchmarks: claims, each with the command that reproduces it. One file a benchmark; the table is here."""

from collections.abc import Callable

from aliquot.bench import fairness, simulator
from aliquot.bench.run import Bench, Request

BENCHES: dict[str, Callable[[Request], Bench]] = {
    "fairness": fairness.FairnessBench,
    "sim": simulator.SimulatorBench,
}
