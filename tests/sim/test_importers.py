"""Tests of the importers on small generated files, and on the real data if they are available."""

import ast
import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean, pstdev

import pytest
from small_traces import (
    AZURE,
    CODE,
    CONV,
    CONVERSATION,
    DURATIONS,
    HELIOS,
    MEMORY,
    MQFQ,
    PHILLY,
    SERVEGEN,
    SMALL,
    SYNTHETIC,
    TIMM,
    check,
    take,
    write,
)

import aliquot.sim.importers
from aliquot.core.errors import InputError
from aliquot.core.model import FlowKey, FunctionSpec, Times
from aliquot.core.units import GIB, MIB
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.gaps import GAP_DISTRIBUTIONS
from aliquot.sim.importers.profiles import read_mqfq, read_timm
from aliquot.sim.importers.scaling import measure, rescale, time_scale
from aliquot.sim.output_files import write_arrivals, write_functions
from aliquot.sim.traces import FunctionsFile, TraceFile


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for name, text in SMALL.items():
        write(folder, name, text)
    return folder


def test_the_table_names_every_importer_once():
    folder = Path(aliquot.sim.importers.__file__).parent
    readers = {
        path.stem for path in folder.glob("*.py") if "(request: ImportRequest) -> ImportedTrace:" in path.read_text()
    }
    keys = [
        key.value
        for node in ast.walk(ast.parse((folder / "__init__.py").read_text()))
        if isinstance(node, ast.Dict)
        for key in node.keys
    ]
    assert keys == sorted(readers) == list(IMPORTERS)


# --- azure_llm, mooncake, philly: every call is listed


def test_llm_calls_of_both_services_are_merged_and_timed_by_their_tokens(data):
    functions, arrivals = check("azure_llm", data)
    assert arrivals == [
        Arrival(0, "conv", "conv", 2.02),
        Arrival(1.02004, "code", "code", 0.4),
        Arrival(3.52004, "code", "code", 1.0),
    ]
    assert functions["conv"] == FunctionSpec("conv", 13 * GIB, times=Times(2.02, 15, 1.083333))
    assert functions["code"].times.run_s == 0.7


def test_mooncake_calls_are_read_from_json_lines(data):
    functions, arrivals = check("mooncake", data)
    assert arrivals == [
        Arrival(0, "conversation", "conversation", 2.0),
        Arrival(1.5, "synthetic", "synthetic", 0.002),
        Arrival(27, "conversation", "conversation", 0.02),
    ]
    assert functions["conversation"] == FunctionSpec("conversation", 13 * GIB, times=Times(1.01, 15, 1.083333))


def test_philly_jobs_with_one_gpu_are_sorted_and_belong_to_their_cluster(data):
    functions, arrivals = check("philly", data)
    assert arrivals == [
        Arrival(0, "job-a", "vc-a", 100),
        Arrival(10, "job-b", "vc-b", 66),
        Arrival(3600, "job-a", "vc-a", 200),
    ]
    assert functions["job-a"] == FunctionSpec("job-a", 8 * GIB, times=Times(150, 30, 0.666667))
    assert list(functions) == ["job-a", "job-b"]


def test_helios_jobs_begin_when_more_run_and_the_oldest_end_when_fewer_do(data):
    functions, arrivals = check("helios", data)
    assert set(functions) == {"job-vcA", "job-vcB"}
    found = sorted((arrival.function, arrival.run_s) for arrival in arrivals)
    assert [name for name, _ in found] == ["job-vcA", "job-vcA", "job-vcB"]  # one ran before the trace
    begun, later = (run_s for name, run_s in found if name == "job-vcA")
    assert 120 <= begun <= later <= 180
    assert 120 <= found[-1][1] <= 180
    write(data, HELIOS, SMALL[HELIOS].replace("vcB,2,", "vcB,1,"))
    with pytest.raises(InputError, match="minute is 1 after 1; it takes ascending minutes of a cluster"):
        take("helios", data)


def test_the_larger_azure_sample_has_a_tenant_for_each_function(data):
    functions, arrivals = check("azure_functions_1000", data, profile="own")
    assert Counter(arrival.tenant for arrival in arrivals) == {"o-ffffff01": 3, "o-ffffff02": 3}
    assert functions["f-ffffff02"].memory_bytes == 1024 * MIB


def test_a_window_has_its_own_mean_and_begins_at_0(data):
    functions, arrivals = check("philly", data, start_s=5, duration_s=3595.5)
    assert [tuple(arrival[:4]) for arrival in arrivals] == [(0, "job-b", "vc-b", 66), (3590, "job-a", "vc-a", 200)]
    assert functions["job-a"].times.run_s == 200
    assert len(take("philly", data, start_s=5, duration_s=3595)[1]) == 1  # its end is outside


def test_the_busiest_flows_are_kept_and_calls_are_cut(data):
    functions, arrivals = check("azure_llm", data, flows=1)
    assert list(functions) == ["code"]
    assert [arrival.time_s for arrival in arrivals] == [0, 2.5]
    assert len(take("azure_llm", data, calls=2)[1]) == 2
    assert take("azure_llm", data, start_s=100) == ({}, [])


@pytest.mark.parametrize("kind", ["azure_llm", "helios", "mooncake", "philly", "servegen"])
def test_traces_with_run_times_take_no_other_profiles(data, kind):
    assert take(kind, data, profile="own") == take(kind, data)
    with pytest.raises(InputError, match=f"--profile: {kind} has run times of its own, not 'timm'; it takes own"):
        take(kind, data, profile="timm")


# --- azure_functions


def test_azure_functions_are_called_as_often_as_counted_per_minute(data):
    functions, arrivals = check("azure_functions", data)
    assert list(functions) == ["f-ffffff01", "f-ffffff02", "f-dddddd01"]  # eight digits tell them apart
    flows = Counter((arrival.tenant, arrival.function) for arrival in arrivals)
    assert flows == {
        ("o-aaaaaaaa1", "f-ffffff01"): 3,
        ("o-aaaaaaaa1", "f-ffffff02"): 300,
        ("o-aaaaaaaa2", "f-dddddd01"): 3,
    }
    assert all(arrival.run_s is None for arrival in arrivals)
    inside = [arrival.time_s for arrival in take("azure_functions", data, start_s=60, duration_s=60)[1]]
    assert len(inside) == 301
    assert 55 < inside[-1] < 60
    assert mean(inside) == pytest.approx(30, abs=3)


def test_short_names_have_six_digits_where_they_suffice(data):
    write(data, AZURE, SMALL[AZURE].replace("ffffff02", "abcdef99").replace("aaaaaaaa2", "cccccccc2"))
    functions, arrivals = check("azure_functions", data)
    assert list(functions) == ["f-ffffff", "f-abcdef", "f-dddddd"]
    assert {arrival.tenant for arrival in arrivals} == {"o-aaaaaa", "o-cccccc"}


def test_the_call_times_of_a_function_do_not_depend_on_the_other_functions(data):
    _, everything = take("azure_functions", data, start_s=60, duration_s=60)
    functions, alone = take("azure_functions", data, start_s=60, duration_s=60, flows=1)
    assert list(functions) == ["f-ffffff02"]
    same = [arrival for arrival in everything if arrival.function == "f-ffffff02"]
    gaps = [[round(other.time_s - one.time_s, 6) for one, other in pairwise(arrivals)] for arrivals in (same, alone)]
    assert gaps[0] == gaps[1]


def test_mqfq_profiles_are_the_published_ones(data):
    imagenet, myocyte = read_mqfq(data)
    assert imagenet == FunctionSpec("imagenet", 3500 * MIB, times=Times(2.253, 6.328, 0.284831))
    assert myocyte == FunctionSpec("myocyte", 1000 * MIB, times=Times(2.784, 0, 0.08138))
    functions, _ = take("azure_functions", data)
    by_default = {name: function.times for name, function in functions.items()}
    assert all(times in (imagenet.times, myocyte.times) for times in by_default.values())
    assert take("azure_functions", data, profile="mqfq")[0] == functions
    seeds = [tuple(take("azure_functions", data, seed=seed)[0].values()) for seed in range(6)]
    assert len(set(map(str, seeds))) > 1


def test_timm_profiles_are_of_models_that_both_devices_ran_at_their_smallest_size(data):
    (tiny,) = read_timm(data)
    bytes_ = 512 * MIB + 400_000_000 + 64_000_000
    assert tiny.memory_bytes == bytes_
    assert tiny.times == Times(0.125, 2.372529, round(bytes_ / (12 * GIB), 6))
    assert tiny.times_by_kind == {"rtx3090": tiny.times, "rtx4090": Times(0.0625, 2.372529, tiny.times.load_s)}
    functions, _ = check("azure_functions", data, profile="timm")
    assert {function.times_by_kind["rtx4090"].run_s for function in functions.values()} == {0.0625}


def test_own_profiles_draw_run_times_between_the_percentiles(data):
    functions, arrivals = check("azure_functions", data, profile="own")
    assert functions["f-ffffff02"] == FunctionSpec("f-ffffff02", GIB, times=Times(0.3, 1.5, 0.083333))
    assert functions["f-ffffff01"] == FunctionSpec("f-ffffff01", GIB // 2, times=Times(0.001, 1, 0.041667))
    runs = {name: [a.run_s for a in arrivals if a.function == name] for name in functions}
    assert runs["f-ffffff01"] == [0.001] * 3
    assert runs["f-dddddd01"] == [2.5] * 3
    assert 0.1 <= min(runs["f-ffffff02"]) < 0.12
    assert 0.48 < max(runs["f-ffffff02"]) <= 0.5
    assert mean(runs["f-ffffff02"]) == pytest.approx(0.3, abs=0.02)
    times = [arrival.time_s for arrival in arrivals]
    assert times == [arrival.time_s for arrival in take("azure_functions", data)[1]]  # independent of the profile


# --- servegen


def test_servegen_clients_are_tenants_with_calls_in_their_windows(data):
    functions, arrivals = check("servegen", data, seed=3)
    assert functions == {
        "m-small-c0": FunctionSpec("m-small-c0", 4 * GIB, times=Times(0.4, 8, 0.333333)),
        "deepseek-r1-c7": FunctionSpec("deepseek-r1-c7", 12 * GIB, times=Times(4, 20, 1)),
    }
    assert all(arrival.tenant == arrival.function for arrival in arrivals)
    assert arrivals[-1].time_s < 600
    _, early = take("servegen", data, duration_s=300)
    assert {arrival.function for arrival in early} == {"deepseek-r1-c7"}  # the other one has no calls then
    functions, late = check("servegen", data, start_s=300, flows=1)
    assert list(functions) == ["m-small-c0"]
    assert late[-1].time_s < 300
    assert take("servegen", data, start_s=600) == ({}, [])


def test_servegen_keeps_rates_and_run_times(data):
    many = "".join(f"m-small,{client},0,0.5,2,Gamma,0.25,0.001\n" for client in range(60))
    write(data, SERVEGEN, SMALL[SERVEGEN].splitlines()[0] + "\n" + many)
    _, arrivals = take("servegen", data)
    assert len(arrivals) == pytest.approx(60 * 0.5 * 600, rel=0.05)  # one window: 600 s
    runs = [arrival.run_s for arrival in arrivals]
    assert mean(runs) == pytest.approx(0.4, rel=0.02)
    assert pstdev(runs) / mean(runs) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(("law", "shape", "cv"), [("", 1, 1), ("Gamma", 0.25, 2), ("Weibull", 0.5, 5**0.5)])
def test_gap_distributions_have_their_mean_and_spread_and_begin_at_a_random_time(law, shape, cv):
    first, gap = GAP_DISTRIBUTIONS[law](shape, 10)
    random = Random(1)
    gaps = [gap(random) for _ in range(40_000)]
    assert mean(gaps) == pytest.approx(10, rel=0.05)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(cv, rel=0.05)
    waits = [first(random) for _ in range(40_000)]
    assert mean(waits) == pytest.approx(10 * (1 + cv**2) / 2, rel=0.06)


# --- wrong input


@pytest.mark.parametrize(
    ("kind", "name", "old", "new", "complaint"),
    [
        ("azure_functions", AZURE, "Trigger", "Triger", r"invocations.csv.gz:1: the column Trigger is missing"),
        (
            "azure_functions",
            AZURE,
            ",481,",
            ",483,",
            r":1: the columns after Trigger are not minutes",
        ),
        ("azure_functions", AZURE, ",300,", ",2.5,", r"invocations.csv.gz:3: 481 is '2.5'; it takes a whole number"),
        ("azure_functions", AZURE, ",300,", ",-3,", r"invocations.csv.gz:3: 481 is '-3'; it takes a whole number"),
        ("azure_functions", AZURE, "ffffff02", "ffffff01", r"invocations.csv.gz:3: function ffffff01 is listed twice"),
        ("azure_functions", MQFQ, "imagenet", "resnet", r"table.csv:2: function 'resnet' has no known memory size"),
        ("azure_functions", MQFQ, "2.253", "fast", r"table.csv:2: gpu_warm_s is 'fast'; it takes seconds, 0 or more"),
        ("own", DURATIONS, "ffffff02", "ffffff09", r"durations.csv.gz: function ffffff02 is missing"),
        ("own", DURATIONS, "100,200", "100,50", r"durations.csv.gz:2: the percentiles are .*; it takes ascending ones"),
        ("own", MEMORY, "ffffff02", "ffffff09", r"memory.csv.gz: function ffffff02 is missing"),
        ("own", MEMORY, ",1024.0,", ",much,", r"memory.csv.gz:3: AverageAllocatedMb_pct50 is 'much'; it takes MB"),
        ("timm", TIMM.format("rtx4090"), "4096", "0", r"rtx4090.csv:2: infer_samples_per_sec is '0'; it takes images"),
        ("timm", TIMM.format("rtx4090"), "tiny", "other", r"rtx3090.csv: there are no usable profiles"),
        ("azure_llm", CODE, "ContextTokens", "Tokens", r"code.csv:1: the column ContextTokens is missing"),
        ("azure_llm", CODE, ",2000,", ",many,", r"code.csv:3: ContextTokens is 'many'; it takes a number of tokens"),
        ("azure_llm", CONV, "2023-11-16 ", "at ", r"conv.csv:2: TIMESTAMP is 'at 18.*'; it takes a date and time"),
        ("azure_llm", CONV, "9799600", "97Z", r"conv.csv:2: TIMESTAMP is .* it takes a date and time without a zone"),
        ("mooncake", SYNTHETIC, "1500", "-1", r"jsonl.gz:2: .*timestamp.*; it takes a JSON object with timestamp, inp"),
        ("mooncake", CONVERSATION, "27000", '"x"', r"jsonl.gz:2: Expected `float`, got `str` - at `\$.timestamp`"),
        ("mooncake", CONVERSATION, "}\n{", "}{", r"jsonl.gz:1: JSON is malformed"),
        ("philly", PHILLY, "100.0,1", "-1,1", r"philly_jobs.csv.gz:4: duration is '-1'; it takes seconds, 0 or more"),
        ("philly", PHILLY, "66.0,b", "66.0,", r"philly_jobs.csv.gz:2: cluster is empty; it takes a name"),
        ("servegen", SERVEGEN, "mm-image", "gpt", r"rates.csv.gz:7: model 'gpt' is not known; it takes m-small, deep"),
        ("servegen", SERVEGEN, "Weibull", "Zipf", r"rates.csv.gz:5: dist is 'Zipf'; it takes Gamma, Weibull or noth"),
        ("servegen", SERVEGEN, "Gamma,0.25", "Gamma,0", r"rates.csv.gz:3: p1 is '0'; it takes a shape above 0"),
        ("servegen", SERVEGEN, "0,600,", "0,300,", r"rates.csv.gz:4: t_s is 300 after 300 of the client"),
    ],
)
def test_wrong_files_are_refused_with_file_and_line(data, kind, name, old, new, complaint):
    assert old in SMALL[name]
    write(data, name, SMALL[name].replace(old, new))
    profile = kind if kind in {"own", "timm"} else None
    with pytest.raises(InputError, match=complaint):
        take("azure_functions" if profile else kind, data, profile=profile)


def test_an_unknown_profile_a_missing_file_and_a_damaged_one_are_refused(data):
    with pytest.raises(InputError, match="--profile: there is no 'cpu'; it takes mqfq, timm, own"):
        take("azure_functions", data, profile="cpu")
    (data / CODE).unlink()
    with pytest.raises(InputError, match=r"code.csv: there is no such file"):
        take("azure_llm", data)
    (data / SYNTHETIC).write_bytes(gzip.compress(b"{}" * 999)[:30])
    with pytest.raises(InputError, match=r"jsonl.gz:1: cannot be read from here on: the gzip file is damaged"):
        take("mooncake", data)
    write(data, AZURE, SMALL[AZURE].splitlines()[0])
    with pytest.raises(InputError, match=r"invocations.csv.gz:2: there are no functions"):
        take("azure_functions", data)


# --- all importers


@pytest.mark.parametrize("kind", IMPORTERS)
@pytest.mark.parametrize("profile", [None, "own"])
def test_written_files_are_read_with_the_same_content(data, tmp_path, kind, profile):
    functions, arrivals = check(kind, data, profile=profile)
    assert write_arrivals(arrivals, tmp_path / "A.csv") == len(arrivals)
    write_functions(functions.values(), tmp_path / "F.csv")
    read = FunctionsFile(tmp_path / "F.csv").functions
    assert read == functions
    assert list(TraceFile(tmp_path / "A.csv", read)) == arrivals


@pytest.mark.parametrize("kind", ["azure_functions", "servegen"])
def test_the_same_seed_gives_the_same_calls_and_another_seed_others(data, kind):
    assert take(kind, data, seed=1) == take(kind, data, seed=1)
    assert take(kind, data, seed=1)[1] != take(kind, data, seed=2)[1]


@pytest.mark.parametrize("kind", IMPORTERS)
def test_scaling_reaches_the_requested_load(data, kind):
    functions, arrivals = check(kind, data)
    measured = measure(arrivals, functions)
    assert measured.calls == len(arrivals)
    scaled = list(rescale(arrivals, time_scale(measured, 0.7, 3)))
    assert measure(scaled, functions).load(3) == pytest.approx(0.7, rel=1e-5)
    assert [arrival[1:] for arrival in scaled] == [arrival[1:] for arrival in arrivals]


def test_the_offered_load_is_the_work_over_the_span_over_the_devices():
    functions = {"f": FunctionSpec("f", times=Times(3)), "g": FunctionSpec("g", times=Times(100))}
    arrivals = [Arrival(0, "f", "ann"), Arrival(1, "g", "bob", run_s=2), Arrival(4, "f", "bob")]
    measured = measure(arrivals, functions)
    assert (measured.work_s, measured.span_s, measured.calls) == (8, 4, 3)
    assert measured.flows == [FlowKey("ann", "f"), FlowKey("bob", "g"), FlowKey("bob", "f")]
    assert measured.tenants == ["ann", "bob"]
    assert (measured.load(1), measured.load(2)) == (2, 1)
    assert time_scale(measured, 0.5, 1) == 4
    assert [arrival.time_s for arrival in rescale(arrivals, 4)] == [0, 4, 16]
    with pytest.raises(InputError, match="--load: all calls come at one moment, so no time scale gives a load of 1"):
        time_scale(measure(arrivals[:1], functions), 1, 1)
    idle = [arrival._replace(run_s=0) for arrival in arrivals]
    with pytest.raises(InputError, match="--load: all calls run for no time, so no time scale gives a load of 1"):
        time_scale(measure(idle, functions), 1, 1)
