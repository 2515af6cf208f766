"""The benchmark `sdk`: many calls at once through the SDK, beside bare connections."""

from aliquot_bench.sdk.bench import SdkBench

__all__ = ["SdkBench"]
