"""`aliquot bench console`: what an open console costs, how fast it answers, and how much it can show."""

from aliquot_bench.console.bench import ConsoleBench

__all__ = ["ConsoleBench"]
