"""Assumptions for values that no trace records: transfer times, and the times of language models.

A language model is assumed to take 0.2 ms per token of the prompt and 20 ms per token of the answer, one request at a
time. This corresponds to a model of some 13 GiB (7 billion parameters of 16 bits) on one device. It starts in 15 s.
"""

from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.workloads import MICROSECONDS

DEVICE_BYTES_PER_S = 12 * GIB  # from host to device, about the rate of PCIe 3.0 x16
STORE_BYTES_PER_S = GIB  # from the store of images and weights to the host

CONTEXT_TOKEN_S = 0.0002
GENERATED_TOKEN_S = 0.02
MODEL_MEMORY_BYTES = 13 * GIB
MODEL_COLD_S = 15


def load_s(memory_bytes: int) -> float:
    """Return the seconds to copy a function's memory to the device."""
    return round(memory_bytes / DEVICE_BYTES_PER_S, MICROSECONDS)


def tokens_run_s(context: float, generated: float) -> float:
    """Return the run time of a request with these numbers of prompt and answer tokens."""
    return round(context * CONTEXT_TOKEN_S + generated * GENERATED_TOKEN_S, MICROSECONDS)


def language_model(name: str, run_s: float) -> FunctionSpec:
    """Make the function of a language model with this mean run time."""
    return FunctionSpec(name, MODEL_MEMORY_BYTES, times=Times(run_s, MODEL_COLD_S, load_s(MODEL_MEMORY_BYTES)))
