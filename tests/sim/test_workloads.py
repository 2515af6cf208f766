"""Tests of generated workloads: load, burstiness and popularity are as requested."""

from itertools import pairwise
from statistics import mean, stdev

import pytest

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import MIB
from aliquot.sim.arrivals import Arrival
from aliquot.sim.output_files import write_arrivals, write_functions
from aliquot.sim.traces import FunctionsFile, TraceFile
from aliquot.sim.workloads import PROCESSES, WorkloadSpec, make_arrivals, make_functions

FUNCTIONS = make_functions(8, seed=1)


def offered_load(arrivals, functions, spec):
    work = sum(arrival.run_s or functions[arrival.function].times.run_s for arrival in arrivals)
    return work / spec.duration_s / spec.devices


@pytest.mark.parametrize("process", sorted(PROCESSES))
@pytest.mark.parametrize("zipf", [0, 1.2])
def test_the_offered_load_is_as_requested(process, zipf):
    spec = WorkloadSpec(load=0.7, devices=3, duration_s=40_000, process=process, cv=2, zipf=zipf, run_cv=0.3)
    arrivals = list(make_arrivals(FUNCTIONS, spec))
    assert offered_load(arrivals, FUNCTIONS, spec) == pytest.approx(0.7, rel=0.1)
    assert [arrival.time_s for arrival in arrivals] == sorted(arrival.time_s for arrival in arrivals)


def spread(spec):
    times = [arrival.time_s for arrival in make_arrivals({"f": FunctionSpec("f", times=Times(1))}, spec)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return stdev(gaps) / mean(gaps)


def test_gamma_gaps_have_the_requested_spread_and_bursts_more_than_poisson():
    long = WorkloadSpec(load=1, devices=1, duration_s=50_000)
    assert spread(long) == pytest.approx(1, rel=0.05)
    assert spread(WorkloadSpec(load=1, devices=1, duration_s=50_000, process="gamma", cv=0.5)) == pytest.approx(
        0.5, rel=0.05
    )
    assert spread(WorkloadSpec(load=1, devices=1, duration_s=50_000, process="gamma", cv=3)) == pytest.approx(
        3, rel=0.15
    )
    assert spread(WorkloadSpec(load=1, devices=1, duration_s=50_000, process="bursty")) > 2


def test_popularity_falls_with_rank():
    spec = WorkloadSpec(zipf=1, duration_s=50_000)
    counts = dict.fromkeys(FUNCTIONS, 0)
    for arrival in make_arrivals(FUNCTIONS, spec):
        counts[arrival.function] += 1
    first, second, *_, last = counts.values()
    assert first / second == pytest.approx(2, rel=0.1)
    assert first / last == pytest.approx(8, rel=0.15)


def test_even_work_gives_every_function_the_same_load():
    spec = WorkloadSpec(duration_s=100_000, even_work=True)
    work = dict.fromkeys(FUNCTIONS, 0.0)
    for arrival in make_arrivals(FUNCTIONS, spec):
        work[arrival.function] += FUNCTIONS[arrival.function].times.run_s
    assert max(work.values()) / min(work.values()) < 1.15


def test_functions_are_divided_among_tenants_and_arrivals_rounded_to_steps():
    arrivals = list(make_arrivals(FUNCTIONS, WorkloadSpec(tenants=3, step_s=2)))
    assert {arrival.tenant for arrival in arrivals} == {"tenant1", "tenant2", "tenant3"}
    assert len({(arrival.tenant, arrival.function) for arrival in arrivals}) == 8
    assert all(arrival.time_s % 2 == 0 for arrival in arrivals)


def test_the_same_seed_makes_the_same_file_and_simulate_reads_it(tmp_path):
    write_functions(FUNCTIONS.values(), tmp_path / "F.csv")
    listed = FunctionsFile(tmp_path / "F.csv")
    assert listed.functions == FUNCTIONS
    files = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        spec = WorkloadSpec(seed=seed, run_cv=0.5, tenants=2)
        count = write_arrivals(make_arrivals(FUNCTIONS, spec), tmp_path / name)
        assert list(TraceFile(tmp_path / name, FUNCTIONS)) == list(make_arrivals(FUNCTIONS, spec))
        assert TraceFile(tmp_path / name, FUNCTIONS).overview().calls == count
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1] != files[2]


def test_functions_that_run_for_no_time_give_no_load():
    with pytest.raises(InputError, match="run_s: a function runs for 0 seconds"):
        make_arrivals({"f": FunctionSpec("f", times=Times(0))}, WorkloadSpec())


def test_deadlines_and_cost_limits_are_written_where_there_are_any(tmp_path):
    arrivals = [Arrival(0, "f001"), Arrival(1, "f001", "ann", 2, 3, 4)]
    for name in ("A.csv", "A.csv.gz"):
        assert write_arrivals(iter(arrivals), tmp_path / name) == 2
        assert list(TraceFile(tmp_path / name, FUNCTIONS)) == arrivals
    first = (tmp_path / "A.csv.gz").read_bytes()
    write_arrivals(iter(arrivals), tmp_path / "A.csv.gz")
    assert (tmp_path / "A.csv.gz").read_bytes() == first


def test_shares_and_times_on_other_kinds_are_written_where_there_are_any(tmp_path):
    plain = FunctionSpec("plain", MIB, times=Times(1, 2, 3))
    shared = FunctionSpec("shared", MIB, share=0, times=Times(1, 2, 3), times_by_kind={"cpu": Times(4, 2, 3)})
    slow = FunctionSpec("slow", MIB, 0.5, Times(1, 2, 3), {"old": Times(5, 6, 3), "cpu": Times(7, 2, 0)}, weight=2)
    headers = []
    for functions in ([plain], [plain, shared], [plain, shared, slow]):
        write_functions(iter(functions), tmp_path / "F.csv")
        assert list(FunctionsFile(tmp_path / "F.csv").functions.values()) == functions
        headers.append((tmp_path / "F.csv").read_text().partition("\n")[0])
    assert headers[0] == "name,run_s,cold_s,memory_mib,load_s,weight"
    assert headers[1] == headers[0] + ",share,run_s@cpu"
    assert headers[2] == headers[0] + ",share,run_s@cpu,load_s@cpu,run_s@old,cold_s@old"
