"""The nine functions of the MQFQ-Sticky paper, as measured on a V100.

Run and cold times are published. The start time is the difference of a cold and a warm call. Memory sizes are not
published and are chosen here. Bytes reach the device at 12 GiB/s.
"""

from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB, MIB

BYTES_PER_S = 12 * GIB

# name, seconds of a warm call, seconds of a cold call, memory in MiB
_MEASURED = (
    ("imagenet", 2.25, 8.58, 3500),
    ("roberta", 0.268, 16.4, 2500),
    ("ffmpeg", 4.48, 12.0, 1500),
    ("fft", 0.897, 2.65, 2500),
    ("isoneural", 0.026, 2.59, 1000),
    ("lud", 2.05, 2.13, 2000),
    ("myocyte", 2.78, 2.15, 1000),
    ("needle", 1.98, 2.29, 4000),
    ("pathfinder", 1.47, 2.00, 3000),
)


def _function(name: str, warm_s: float, cold_s: float, memory_mib: int) -> FunctionSpec:
    size = memory_mib * MIB
    times = Times(warm_s, round(max(0.0, cold_s - warm_s), 3), round(size / BYTES_PER_S, 3))
    return FunctionSpec(name, size, times=times)


V100_FUNCTIONS: dict[str, FunctionSpec] = {line[0]: _function(*line) for line in _MEASURED}
