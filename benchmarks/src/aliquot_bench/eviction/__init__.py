"""`aliquot bench eviction`: how often each eviction policy has what is asked for, on recorded block references."""

from aliquot_bench.eviction.bench import EvictionBench

__all__ = ["EvictionBench"]
