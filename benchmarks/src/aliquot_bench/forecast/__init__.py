"""`aliquot bench forecast`: cold starts against the memory that idle sandboxes hold."""

from aliquot_bench.forecast.bench import ForecastBench

__all__ = ["ForecastBench"]
