"""`aliquot bench sharing`: how well slices of a device are kept, lent and given back, beside what KNIX published."""

from aliquot_bench.sharing.bench import SharingBench

__all__ = ["SharingBench"]
