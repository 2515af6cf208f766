"""The benchmark of views: how fast a cached file of a dataset is read, beside the same bytes on the local disk."""

from aliquot_bench.views.bench import ViewsBench

__all__ = ["ViewsBench"]
