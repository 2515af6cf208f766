"""`aliquot bench latency`: warm calls of Aliquot, bare servers and other serving systems."""

from aliquot_bench.latency.bench import LatencyBench

__all__ = ["LatencyBench"]
