"""`aliquot bench sharing`: how well slices of a device are isolated, lent and returned, beside KNIX's results."""

from aliquot_bench.sharing.bench import SharingBench

__all__ = ["SharingBench"]
