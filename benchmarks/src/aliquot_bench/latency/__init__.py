"""The latency benchmark: the load generator, the floors, the peers, Aliquot, and what the figures mean."""

from aliquot_bench.latency.bench import LatencyBench

__all__ = ["LatencyBench"]
