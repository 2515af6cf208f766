"""`aliquot bench sharing`: how well slices of a device are isolated, lent and returned, compared with KNIX."""

from aliquot_bench.sharing.bench import SharingBench

__all__ = ["SharingBench"]
