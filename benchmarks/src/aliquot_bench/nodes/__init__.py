"""`aliquot bench cluster`: calls on other nodes, and what the loss of a node costs."""

from aliquot_bench.nodes.bench import ClusterBench

__all__ = ["ClusterBench"]
