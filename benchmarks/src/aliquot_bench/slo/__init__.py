"""The benchmark `slo`: deadlines and budgets, against published methods and the offline optimum."""

from aliquot_bench.slo.bench import SloBench

__all__ = ["SloBench"]
