"""`aliquot bench prediction`: how well each predictor names the next file, on recorded sessions of real users."""

from aliquot_bench.prediction.bench import PredictionBench

__all__ = ["PredictionBench"]
