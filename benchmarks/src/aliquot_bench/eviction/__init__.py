"""`aliquot bench eviction`: the hit rates of the eviction policies on recorded block references."""

from aliquot_bench.eviction.bench import EvictionBench

__all__ = ["EvictionBench"]
