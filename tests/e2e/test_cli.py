"""The command line of simulations and benchmarks, with files on disk."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import aliquot, aliquot_process

from aliquot.policies.queueing import QUEUEING
from aliquot.sim.experiments.thesis import PRINTED_SEED, PUBLISHED
from aliquot_bench import simulator
from aliquot_bench.benches import BENCHES

PNG = b"\x89PNG\r\n\x1a\n"
THESIS_ARRIVALS = "time_s,function,tenant\n0,resnet,client1\n1,bert,client2\n2,resnet,client1\n3,resnet,client1\n"
THESIS_FUNCTIONS = "name,run_s,cold_s,memory_mib\nbert,8,10,500\nresnet,2,4,100\n"


@pytest.fixture
def thesis(tmp_path):
    (tmp_path / "A.csv").write_text(THESIS_ARRIVALS)
    (tmp_path / "F.csv").write_text(THESIS_FUNCTIONS)
    return tmp_path


@pytest.fixture
def made(tmp_path):
    aliquot(
        *("workload", "make", "--arrivals", "A.csv", "--functions", "F.csv", "--make-functions", 6, "--load", 1.2),
        *("--duration", 120, "--tenants", 2, "--process", "gamma", "--zipf", 1, "--run-cv", 0.3),
        cwd=tmp_path,
    )
    return tmp_path


SIMULATE = ("simulate", "--arrivals", "A.csv", "--functions", "F.csv")


def simulate(cwd, *more, **options):
    return aliquot(*SIMULATE, *more, cwd=cwd, **options)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.policy)
def test_simulate_gives_the_printed_schedules_of_the_thesis(thesis, published):
    simulate(
        thesis,
        *("--devices", 2, "--concurrency", 1, "--memory", "unbounded", "--policy", published.policy),
        *("--seed", PRINTED_SEED, "--json", "out.json", "--schedule", "schedule.csv", "--check"),
    )
    with (thesis / "schedule.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    schedule = "; ".join(
        f"{line['function'][0].upper()}{line['arrived_s']} -> {line['time_s']},{line['device'][-1]}" for line in lines
    )
    assert schedule == published.schedule
    (run,) = json.loads((thesis / "out.json").read_bytes())["runs"]
    assert (run["makespan_s"], run["cold_starts"], run["completed"]) == (published.total_s, published.cold, 4)
    assert run["wait_s"]["mean"] == published.mean_wait_s
    assert round(run["per_function"]["resnet"]["wait_s"]["mean"], 2) == published.resnet_wait_s
    assert run["per_function"]["bert"]["wait_s"]["mean"] == published.bert_wait_s
    assert [line["start"] for line in lines].count("cold") == published.cold


def test_simulate_compares_policies_in_a_table_a_file_and_a_picture(made):
    names = "fcfs,batch,mqfq_sticky"
    printed = simulate(made, "--devices", 2, "--policy", names, "--seed", "0,1", "--json", "o.json", "--plot", "o.png")
    runs = json.loads((made / "o.json").read_bytes())["runs"]
    assert [(run["policy"], run["seed"]) for run in runs] == [(name, s) for name in names.split(",") for s in (0, 1)]
    assert (made / "o.png").read_bytes().startswith(PNG)
    for name in names.split(","):
        assert name in printed
    calls = len((made / "A.csv").read_text().splitlines()) - 1
    for run in runs:
        assert (run["completed"], run["rejected"]) == (calls, 0)
        assert set(run["latency_s"]) == set(run["wait_s"]) == {"mean", "p50", "p95", "p99", "max"}
        assert set(run["fairness"]) == {"jain", "max_gap_s", "variance_of_means"}
        assert len(run["per_function"]) == 6
        assert sum(group["completed"] for group in run["per_tenant"].values()) == calls
        assert 0 < run["utilisation"] <= 1


@pytest.mark.parametrize("policy", ["mlfq", "mqfq_sticky"])
def test_the_same_seed_gives_the_same_bytes_under_any_hash_seed(made, policy):
    files = []
    for hash_seed in ("0", "12345"):
        names = ("--json", "o.json", "--schedule", "s.csv", "--plot", "o.png")
        aliquot_process(*SIMULATE, "--devices", 2, "--policy", policy, *names, cwd=made, PYTHONHASHSEED=hash_seed)
        files.append([(made / name).read_bytes() for name in ("o.json", "s.csv", "o.png")])
    assert files[0] == files[1]


def test_parameters_keepalive_and_weights_reach_the_policies(made):
    def figures(*more):
        simulate(made, "--device-memory", "8GiB", "--json", "o.json", *more)
        return json.loads((made / "o.json").read_bytes())["runs"][0]

    plain = figures("--policy", "mqfq_sticky")
    assert figures("--policy", "mqfq_sticky", "--set", "mqfq_sticky.T=0") != plain
    assert figures("--policy", "mqfq_sticky", "--keepalive", "none", "--eviction", "lru") != plain
    assert figures("--policy", "mqfq_sticky", "--interference", "v100") != plain
    favoured = figures("--policy", "mqfq_sticky", "--tenant-weight", "tenant1=10")
    assert favoured["per_tenant"]["tenant1"]["latency_s"]["mean"] < plain["per_tenant"]["tenant1"]["latency_s"]["mean"]
    cold = figures("--policy", "fcfs", "--keepalive", "fixed_ttl", "--set", "fixed_ttl.ttl_s=1")
    assert cold["cold_starts"] > figures("--policy", "fcfs")["cold_starts"]


def test_a_mixed_cluster_with_a_device_file_and_a_cpu(tmp_path):
    (tmp_path / "A.csv").write_text("time_s,function\n" + "".join(f"0,{name}\n" for name in ("f", "f", "f", "host")))
    (tmp_path / "F.csv").write_text("name,run_s,cold_s,memory_mib,share,run_s@rtx3090\nf,4,0,10,,6\nhost,1,0,1,0,\n")
    (tmp_path / "kinds.toml").write_text('[rtx4090]\nspeed = 2\nmemory = "24GiB"\nconcurrency = 1\n[rtx3090]\n')
    simulate(
        tmp_path,
        *("--devices", "rtx4090:1,rtx3090:1", "--device-spec", "kinds.toml", "--concurrency", 1, "--policy", "fcfs"),
        *("--schedule", "s.csv", "--json", "o.json"),
    )
    with (tmp_path / "s.csv").open(newline="") as file:
        lines = [(line["time_s"], line["device"], line["function"]) for line in csv.DictReader(file)]
    assert sorted(lines) == [
        ("0", "cpu-1", "host"),
        ("0", "rtx3090-1", "f"),
        ("0", "rtx4090-1", "f"),
        ("2", "rtx4090-1", "f"),
    ]
    assert json.loads((tmp_path / "o.json").read_bytes())["runs"][0]["makespan_s"] == 6


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--policy", "fifo"), "policy: there is no 'fifo'; it takes affinity,"),
        (("--policy", "fcfs,fcfs"), "--policy: 'fcfs,fcfs' has an empty or repeated part"),
        (("--keepalive", "forever"), "keepalive: there is no 'forever'; it takes adaptive, anticipatory, "),
        (("--eviction", "mru"), "eviction: there is no 'mru'; it takes cost_aware, gdsf, lecar, lfu, lru, s3fifo"),
        (("--set", "mqfq_sticky"), "--set: 'mqfq_sticky' is not of the form name=value"),
        (("--set", "T=5"), "--set: 'T=5' is not of the form policy.parameter=value"),
        (("--set", "exclusive.rebalance=1"), "--set: exclusive is not among the policies of this run: fair_resident"),
        (("--tenant-weight", "a=-1"), "the weight of a is '-1'; it takes a number from 1e-06 to 1e+06"),
        (("--seed", "x"), "--seed: 'x' is not a whole number"),
        (("--memory", "big"), "--memory: 'big' is not known; it takes finite or unbounded"),
        (("--device-memory", "12 GX"), "--device-memory: '12 GX' is not a size, such as 16GiB"),
        (("--device-memory", "1MiB"), "F.csv:2: function 'bert' fits no device: gpu-1: needs"),
        (("--json", "no/such/o.json"), "--json: there is no folder no/such"),
        (("--json", "."), "--json: . is a folder; it takes a file's name"),
        (("--plot", "o.tiffany"), "--plot: o.tiffany has no image suffix; it takes one of"),
        (("--arrivals", "B.csv"), "B.csv: there is no such file"),
        (("--device-spec", "k.toml"), "k.toml: there is no such file"),
        (("--files", "D.csv"), "D.csv: there is no such file"),
        (("--link", "0"), "--link: '0' brings nothing; it takes bytes per second, such as 100MB"),
        (("--prefetching", "all"), "prefetching: there is no 'all'; it takes expected_benefit, none, threshold"),
        (("--predictor", "oracle"), "--predictor: 'oracle' is not known; it takes clairvoyant or markov1"),
    ],
)
def test_wrong_options_end_with_2_and_a_line_that_helps(thesis, options, complaint):
    printed = simulate(thesis, *options, code=2)
    assert complaint in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--schedule", "A.csv"), "--schedule: A.csv is also given as --arrivals; it takes a file of its own"),
        (("--json", "./F.csv"), "--json: F.csv is also given as --functions"),
        (("--json", "z", "--schedule", "z"), "--schedule: z is also given as --json"),
        (("--json", "/proc/o.json"), "--json: /proc/o.json cannot be written"),
        (("--schedule", "/dev/full"), "No space left on device"),
        (
            ("--devices", "rtx409O:1", "--device-spec", "kinds.toml"),
            "kind rtx409O is not in the device file, which has a",
        ),
        (("--tenant-weight", "nobody=3"), "--tenant-weight: there is no tenant nobody; there are client1, client2"),
        (
            ("--set", "fixed_ttl.ttl_s=1"),
            "--set: fixed_ttl is not among the policies of this run: fair_resident, adaptive",
        ),
        (("--keepalive", ""), "keepalive: there is no ''; it takes adaptive"),
        (
            ("--policy", "mqfq_sticky", "--set", "mqfq_sticky.pool_slots=0"),
            "mqfq_sticky.pool_slots: 0 does not fit: it takes 1 or more",
        ),
        (("--tenant-weight", "client1=1e-308"), "the weight of client1 is '1e-308'; it takes a number from 1e-06"),
        (("--device-memory", "9" * 400), "is not a size, such as 16GiB"),
    ],
)
def test_mistakes_are_said_and_files_left_alone(thesis, options, complaint):
    (thesis / "kinds.toml").write_text("[a]\n")
    (thesis / "z").write_text("precious")
    assert complaint in simulate(thesis, *options, code=2).replace("\n", " ")
    assert (thesis / "A.csv").read_text() == THESIS_ARRIVALS
    assert (thesis / "F.csv").read_text() == THESIS_FUNCTIONS
    assert (thesis / "z").read_text() == "precious"


def test_files_are_read_and_prefetching_is_compared(tmp_path):
    files = ("--files", "D.csv")
    aliquot(
        *("workload", "readers", "--arrivals", "A.csv", "--functions", "F.csv", *files),
        *("--users", 2, "--rounds", 8, "--gap", 60),
        cwd=tmp_path,
    )
    options = ("--policy", "fcfs", "--prefetching", "none,threshold", "--session-lead", 8, "--cache", "600MiB")
    printed = simulate(tmp_path, *files, *options, "--check", "--json", "o.json", columns=200)
    assert "hidden %" in printed
    assert "wasted %" in printed
    plain, ahead = json.loads((tmp_path / "o.json").read_bytes())["runs"]
    assert (plain["policy"], ahead["policy"]) == ("fcfs, none", "fcfs, threshold")
    assert plain["data"]["prefetched_bytes"] == 0
    assert ahead["data"]["hidden"] > plain["data"]["hidden"]
    assert ahead["latency_s"]["mean"] < plain["latency_s"]["mean"]


def test_more_at_once_than_pool_slots_just_wait(thesis):
    (thesis / "A.csv").write_text("time_s,function\n" + "0,resnet\n" * 40)
    options = ("--concurrency", 40, "--device-memory", "64GiB", "--check", "--json", "o.json")
    simulate(thesis, *options)
    assert json.loads((thesis / "o.json").read_bytes())["runs"][0]["completed"] == 40


def test_odd_names_come_out_as_they_are(thesis):
    (thesis / "A.csv").write_text("time_s,function\n0,$\\foo$\n0,[red]\n")
    (thesis / "F.csv").write_text("name,run_s,cold_s,memory_mib\n$\\foo$,1,1,1\n[red],1,1,1\n")
    (thesis / "A.csv").rename(thesis / "C[red].csv")
    printed = aliquot(
        *("simulate", "--arrivals", "C[red].csv", "--functions", "F.csv", "--plot", "o.svg", "--json", "x[b].json"),
        cwd=thesis,
    )
    assert "C[red].csv" in printed
    assert "x[b].json" in printed
    first = (thesis / "o.svg").read_bytes()
    aliquot("simulate", "--arrivals", "C[red].csv", "--functions", "F.csv", "--plot", "o.svg", cwd=thesis)
    assert (thesis / "o.svg").read_bytes() == first


def test_wrong_input_ends_with_2_and_names_file_and_line(thesis):
    (thesis / "A.csv").write_text("time_s,function\n0,resnet\n0,vgg\n")
    assert "error: A.csv:3: function 'vgg' is not known" in simulate(thesis, code=2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--load", 0), "--load: 0.0 does not fit; it takes a number above 0, at most 1e+09"),
        (("--process", "levy"), "--process: there is no 'levy'; it takes bursty, gamma, poisson"),
        (("--functions", "nowhere.csv"), "nowhere.csv: there is no such file"),
    ],
)
def test_wrong_recipes_are_refused(thesis, options, complaint):
    base = ("workload", "make", "--arrivals", "B.csv", "--functions", "F.csv")
    assert complaint in aliquot(*base, *options, cwd=thesis, code=2)


def test_reproduce_thesis_prints_both_and_draws(tmp_path):
    printed = aliquot("reproduce", "thesis", "--seeds", 1, cwd=tmp_path)
    assert printed.count("same") == 5
    assert "differs" not in printed
    assert (tmp_path / "thesis.png").read_bytes().startswith(PNG)


def test_reproduce_mqfq_prints_every_policy_beside_the_published_ratios(tmp_path):
    printed = aliquot("reproduce", "mqfq", "--seeds", 1, cwd=tmp_path)
    for name in (*QUEUEING, "1.2 to 6.7", "T: how far ahead"):
        assert name in printed
    assert (tmp_path / "mqfq.png").read_bytes().startswith(PNG)


def test_compare_takes_any_trace(made):
    printed = aliquot("compare", "--arrivals", "A.csv", "--functions", "F.csv", "--devices", 2, cwd=made)
    for name in ("fcfs", "mqfq_sticky", "fair_resident"):
        assert name in printed
    assert (made / "compare.png").read_bytes().startswith(PNG)


def small_bench(request):
    bench = simulator.SimulatorBench(request)
    bench._calls = 2000
    return bench


def test_bench_says_what_is_met_and_what_is_not(tmp_path, monkeypatch):
    monkeypatch.setitem(BENCHES, "sim", small_bench)
    monkeypatch.setattr(simulator, "FLOWS", (10, 10_000))
    monkeypatch.setattr(simulator, "DEVICES", (4, 70))
    monkeypatch.setattr(simulator, "QUICK_NODES", (1, 2))
    aliquot("bench", "sim", "--quick", "--json", "o.json", "--plot", "o.png", cwd=tmp_path)
    result = json.loads((tmp_path / "o.json").read_bytes())
    assert result["name"] == "sim"
    for goal in result["goals"]:
        assert set(goal) == {"name", "value", "goal", "unit", "met"}
    assert (tmp_path / "o.png").read_bytes().startswith(PNG)
    refused = aliquot("bench", "speed", cwd=tmp_path, code=2)
    assert f"there is no 'speed'; it takes {', '.join(BENCHES)}" in refused
    assert "--data: there is no folder" in aliquot("bench", "fairness", "--data", "nowhere", cwd=tmp_path, code=2)


def test_study_compares_policies_on_its_own(tmp_path):
    printed = aliquot("study", "--minutes", 2, cwd=tmp_path)
    assert "mqfq_sticky" in printed
    assert (tmp_path / "study-output" / "policies.png").read_bytes().startswith(PNG)


def test_policies_lists_the_tables(tmp_path):
    printed = aliquot("policies", cwd=tmp_path)
    for name in (*QUEUEING, "srtf_clairvoyant", "fixed_ttl", "lru", "T=5"):
        assert name in printed


def test_help_teaches(tmp_path):
    assert "aliquot study" in aliquot("--help", cwd=tmp_path)
    assert "--policy" in aliquot("simulate", "--help", cwd=tmp_path)
    assert aliquot("--version", cwd=tmp_path).startswith("aliquot ")


def test_a_picture_without_matplotlib_is_refused_before_the_run(thesis):
    (thesis / "matplotlib.py").write_text("raise ModuleNotFoundError('matplotlib')\n")
    printed = aliquot_process(*SIMULATE, "--plot", "o.png", cwd=thesis, code=2, PYTHONPATH=str(thesis))
    assert "pip install 'aliquot[plot]'" in printed
    # Nothing else needs it.
    assert "cannot" not in aliquot_process(*SIMULATE, cwd=thesis, PYTHONPATH=str(thesis))


def test_the_command_is_installed():
    script = Path(sys.executable).parent / "aliquot"
    assert "simulate" in subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
