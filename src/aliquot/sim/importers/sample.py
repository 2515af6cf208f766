"""A small sample in the formats of public traces, made from random numbers, so that imports run without downloads.

Nothing of it was recorded. It has the shape of the traces: few functions make most calls, calls of a tenant come in
waves, and clients of models have rates that change. Figures from it are no results.
"""

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from math import exp, pi, sin
from pathlib import Path
from random import Random

from aliquot.sim.v100 import V100_FUNCTIONS

AZURE_MINUTES = range(480, 960)  # eight hours, as in the sample of 500 functions
FUNCTIONS, OWNERS = 40, 16
SERVEGEN_WINDOW_S = 600
SERVEGEN_HOURS = 72
SERVEGEN_CLIENTS = {"m-small": 8, "deepseek-r1": 5, "mm-image": 3}
PERCENTS = (0, 1, 25, 50, 75, 99, 100)
_QUARTILE = 0.6745  # standard deviations from the median to the quartiles
_DEVIATIONS = (-3.0, -2.33, -_QUARTILE, 0.0, _QUARTILE, 2.33, 3.0)

Rows = Iterator[Sequence[object]]


def write_sample(folder: Path, seed: int = 0) -> list[Path]:
    """Write the files into folders named as those of the traces, and return their paths."""
    functions = _functions(Random(f"{seed}/functions"))
    azure = "azure_functions_2019/dirigent500"
    made = {
        f"{azure}_invocations.csv.gz": _invocations(functions, Random(f"{seed}/calls")),
        f"{azure}_durations.csv.gz": _durations(functions, Random(f"{seed}/durations")),
        f"{azure}_memory.csv.gz": _memory(functions, Random(f"{seed}/memory")),
        "azure_llm_2023/AzureLLMInferenceTrace_code.csv": _tokens(Random(f"{seed}/code"), 2000, 30),
        "azure_llm_2023/AzureLLMInferenceTrace_conv.csv": _tokens(Random(f"{seed}/conv"), 1000, 200),
        "servegen_clients/servegen_client_rates.csv.gz": _client_rates(Random(f"{seed}/clients")),
        "function_profiles/mqfq_v100_table.csv": _profiles(),
    }
    for name, rows in made.items():
        _write(folder / name, rows)
    return [folder / name for name in made]


def _write(path: Path, rows: Rows) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _functions(random: Random) -> list[tuple[str, str, str]]:
    """Return the hashes of owner, app and function of each function."""
    owners = [f"{random.getrandbits(128):032x}" for _ in range(OWNERS)]
    return [
        (random.choice(owners), f"{random.getrandbits(128):032x}", f"{random.getrandbits(128):032x}")
        for _ in range(FUNCTIONS)
    ]


def _invocations(functions: Sequence[tuple[str, str, str]], random: Random) -> Rows:
    yield ("HashOwner", "HashApp", "HashFunction", "Trigger", *AZURE_MINUTES)
    for rank, hashes in enumerate(functions, start=1):
        per_minute, phase = 60 / rank, random.uniform(0, 2 * pi)
        waves = [max(0.0, 1 + sin(minute / 30 + phase)) for minute in AZURE_MINUTES]
        calls = [round(random.expovariate(1 / (per_minute * wave))) if wave else 0 for wave in waves]
        yield (*hashes, random.choice(("http", "queue", "timer")), *calls)


def _durations(functions: Sequence[tuple[str, str, str]], random: Random) -> Rows:
    yield ("HashOwner", "HashApp", "HashFunction", "Average", "Count", *(f"percentile_Average_{p}" for p in PERCENTS))
    for hashes in functions:
        median, spread = random.lognormvariate(6, 1), random.uniform(0.1, 0.8)
        cuts = [round(median * exp(spread * deviation), 1) for deviation in _DEVIATIONS]
        yield (*hashes, round(median * exp(spread**2 / 2), 1), 1000, *cuts)


def _memory(functions: Sequence[tuple[str, str, str]], random: Random) -> Rows:
    yield ("HashFunction", "HashOwner", "HashApp", "SampleCount", "AverageAllocatedMb_pct50")
    for owner, app, function in functions:
        yield (function, owner, app, 1000, round(random.lognormvariate(6.5, 0.6), 1))


def _tokens(random: Random, context: int, generated: int) -> Rows:
    yield ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    at_s = 0.0
    while (at_s := at_s + random.expovariate(1)) < 20 * 60:
        minute, second = divmod(at_s, 60)
        tokens = [1 + round(random.expovariate(1 / mean)) for mean in (context, generated)]
        yield (f"2023-11-16 18:{int(minute):02d}:{second:09.6f}", *tokens)


def _client_rates(random: Random) -> Rows:
    yield ("model", "client", "t_s", "rate_rps", "cv", "dist", "p1", "p2")
    for model, clients in SERVEGEN_CLIENTS.items():
        for client in range(clients):
            usual, phase = random.lognormvariate(-2, 1), random.uniform(0, 2 * pi)
            for window in range(SERVEGEN_HOURS * 3600 // SERVEGEN_WINDOW_S):
                daily = 1 + 0.8 * sin(2 * pi * window * SERVEGEN_WINDOW_S / 86_400 + phase)
                rate = round(usual * daily * random.uniform(0.7, 1.3), 5)
                yield (model, client, window * SERVEGEN_WINDOW_S, rate, 1.5, "Gamma", 0.44, round(1 / (0.44 * rate), 5))


def _profiles() -> Rows:
    """Yield the run times that `v100.py` has of the nine published functions."""
    yield ("function", "gpu_warm_s", "gpu_cold_s", "in_published_table")
    for name, function in V100_FUNCTIONS.items():
        yield (name, function.times.run_s, round((function.times.run_s or 0) + function.times.cold_s, 6), 1)
