"""Imports of public traces from their files."""

import gzip
from collections import Counter

import pytest
from small_traces import AZURE, REAL, check, take

from aliquot.core.units import GIB

pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real traces are not beside the repository")


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("azure_llm", {"code": 8_819, "conv": 19_366}),
        ("mooncake", {"conversation": 12_031, "synthetic": 3_993}),
    ],
)
def test_the_real_llm_traces_have_the_calls_their_readme_counts(kind, calls):
    functions, arrivals = check(kind, REAL)
    assert Counter(arrival.function for arrival in arrivals) == calls
    assert set(functions) == set(calls)
    assert arrivals[-1].time_s < 3600


def test_the_real_philly_jobs_are_of_15_tenants():
    functions, arrivals = check("philly", REAL)
    assert len(arrivals) == 76_627
    assert len(functions) == len({arrival.tenant for arrival in arrivals}) == 15
    day = take("philly", REAL, start_s=30 * 86_400, duration_s=86_400)[1]
    assert day
    assert day[-1].time_s < 86_400


@pytest.mark.parametrize("profile", ["mqfq", "timm", "own"])
def test_the_real_azure_functions_are_called_as_counted(profile):
    with gzip.open(REAL / AZURE, "rt") as file:
        next(file)
        counts = [[int(count) for count in line.split(",")[4:]] for line in file]
    assert sum(map(sum, counts)) == 3_037_902
    functions, arrivals = check("azure_functions", REAL, profile=profile, start_s=3600, duration_s=300)
    assert len(arrivals) == sum(sum(row[60:65]) for row in counts)
    assert len(functions) == sum(any(row[60:65]) for row in counts)
    assert arrivals[-1].time_s < 300
    assert all(function.memory_bytes <= 16 * GIB for function in functions.values())


def test_the_real_servegen_clients_call_at_their_rates():
    functions, arrivals = check("servegen", REAL, calls=20_000)
    assert len(arrivals) == 20_000
    assert {name.rpartition("-c")[0] for name in functions} == {"m-small", "deepseek-r1", "mm-image"}
    assert len(functions) == 137  # the other 14 of 151 clients have no calls on the first day
