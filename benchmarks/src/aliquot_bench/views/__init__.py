"""`aliquot bench views`: the speed of reading a cached file of a dataset, compared with the local disk."""

from aliquot_bench.views.bench import ViewsBench

__all__ = ["ViewsBench"]
