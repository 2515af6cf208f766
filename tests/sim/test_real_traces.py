"""Imports of public traces from their files."""

import gzip
from collections import Counter

import pytest
from small_traces import AZURE, AZURE_1000, HELIOS, REAL, check, take

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


def test_the_real_helios_jobs_are_of_16_tenants_and_run_as_many_at_once_as_counted():
    functions, arrivals = check("helios", REAL)
    assert len(functions) == 16
    mean_jobs = sum(arrival.run_s for arrival in arrivals) / (44_640 * 60)
    with gzip.open(REAL / HELIOS, "rt") as file:
        next(file)
        counted = sum(int(line.split(",")[5]) for line in file) / 44_640
    assert mean_jobs == pytest.approx(counted, rel=0.1)  # jobs of the first minute began before the trace


def test_the_larger_real_sample_is_called_as_counted():
    with gzip.open(REAL / AZURE_1000, "rt") as file:
        next(file)
        counts = [[int(count) for count in line.split(",")[3:]] for line in file]
    assert sum(map(sum, counts)) == 15_763_373
    functions, arrivals = check("azure_functions_1000", REAL, profile="own", start_s=3600, duration_s=60)
    assert len(arrivals) == sum(row[60] for row in counts)
    assert len(functions) == sum(row[60] > 0 for row in counts)


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
