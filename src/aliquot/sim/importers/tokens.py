"""A language model's times from its tokens: what the LLM traces give is how long prompts and answers are.

Assumed: 0.2 ms a token of the prompt and 20 ms a token of the answer, one request at a time, as a model of some
13 GiB (7 billion parameters of 16 bits) on one device; 15 s to start it.
"""

from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.importers.sizes import load_s
from aliquot.sim.workloads import MICROSECONDS

CONTEXT_TOKEN_S = 0.0002
GENERATED_TOKEN_S = 0.02
MEMORY_BYTES = 13 * GIB
COLD_S = 15


def tokens_run_s(context: float, generated: float) -> float:
    return round(context * CONTEXT_TOKEN_S + generated * GENERATED_TOKEN_S, MICROSECONDS)


def language_model(name: str, run_s: float) -> FunctionSpec:
    return FunctionSpec(name, MEMORY_BYTES, times=Times(run_s, COLD_S, load_s(MEMORY_BYTES)))
