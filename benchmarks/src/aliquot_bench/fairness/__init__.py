"""`aliquot bench fairness`: Aliquot's scheduler compared with published ones, on real arrivals."""

from aliquot_bench.fairness.bench import FairnessBench

__all__ = ["FairnessBench"]
