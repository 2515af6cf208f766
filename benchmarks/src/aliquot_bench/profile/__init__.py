"""`aliquot bench profile`: what the profiler sees of six kinds of functions, and what it costs."""

from aliquot_bench.profile.bench import ProfileBench

__all__ = ["ProfileBench"]
