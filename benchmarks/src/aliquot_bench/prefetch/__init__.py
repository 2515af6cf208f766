"""`aliquot bench prefetch`: three ways to read remote files over a link like a NAS's, on the live platform."""

from aliquot_bench.prefetch.bench import PrefetchBench

__all__ = ["PrefetchBench"]
