"""`aliquot bench fairness`: Aliquot's scheduler beside the published ones, on real arrivals."""

from aliquot_bench.fairness.bench import FairnessBench

__all__ = ["FairnessBench"]
