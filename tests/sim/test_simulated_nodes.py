"""Simulations of several nodes: their tables, and nodes that are lost."""

import json

import pytest
from typer.testing import CliRunner

from aliquot.cli.app import app
from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, FunctionSpec, NodeSpec, Times
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.nodes import NodeLoss, NodeTable, make_nodes, parse_losses
from aliquot.sim.report import report
from aliquot.sim.workloads import WorkloadSpec, make_arrivals


def nodes_of(count, devices=4, **options):
    nodes = [NodeSpec(f"n{number}", **options) for number in range(count)]
    listed = [
        DeviceSpec(f"{node.name}/gpu-{number}", memory_bytes=16 * GIB, concurrency=1, node=node.name)
        for node in nodes
        for number in range(devices)
    ]
    return nodes, listed


def test_nodes_come_from_tables():
    tables = {"small": NodeTable("2"), "big": NodeTable("1", count=2, host_memory="4GiB", bandwidth="1GB")}
    nodes, devices = make_nodes(tables, lambda text: [DeviceSpec(f"gpu-{n}") for n in range(int(text))])
    assert nodes == [NodeSpec("small"), NodeSpec("big-1", 4 * GIB, 10**9), NodeSpec("big-2", 4 * GIB, 10**9)]
    assert [(device.name, device.node) for device in devices] == [
        ("small/gpu-0", "small"),
        ("small/gpu-1", "small"),
        ("big-1/gpu-0", "big-1"),
        ("big-2/gpu-0", "big-2"),
    ]
    with pytest.raises(InputError, match=r"\[nodes.a\].count is 0; it takes a number from 1"):
        make_nodes({"a": NodeTable("1", count=0)}, lambda _: [])
    with pytest.raises(InputError, match="two nodes have one name"):
        make_nodes({"a-1": NodeTable("1"), "a": NodeTable("1", count=2)}, lambda _: [])


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["n0"], "'n0' is not of the form NODE@SECONDS"),
        (["n0@soon"], "'n0@soon' is not of the form NODE@SECONDS"),
        (["n0@-1"], "'n0@-1' is not of the form NODE@SECONDS"),
        (["n9@1"], "there is no node 'n9'; there are n0, n1"),
        (["n0@1", "n0@2"], "node n0 is lost twice"),
    ],
)
def test_a_wrong_loss_is_refused(texts, complaint):
    with pytest.raises(InputError, match=complaint):
        parse_losses(texts, nodes_of(2)[0])


def test_losses_are_sorted_by_time():
    assert parse_losses(["n1@20", "n0@1.5"], nodes_of(2)[0]) == [NodeLoss(1.5, "n0"), NodeLoss(20, "n1")]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_every_call_ends_once_when_nodes_are_lost(policy):
    nodes, devices = nodes_of(3, devices=2)
    functions = {f"f{n}": FunctionSpec(f"f{n}", GIB, None, Times(1, 0.5, 0.1)) for n in range(6)}
    arrivals = [Arrival(number / 5, f"f{number % 6}") for number in range(300)]
    losses = [NodeLoss(10.05, "n1"), NodeLoss(20.05, "n2")]
    scenario = Scenario(devices, functions, ListedWorkload(arrivals), check=True, nodes=nodes, losses=losses)
    lines = []
    figures = report(policy, 0, simulate(scenario, PolicySettings(policy), on_dispatch=lines.append), devices)
    assert figures.completed + figures.failed == 300
    assert 1 <= figures.failed <= 4  # those that ran on the four lost devices
    assert all(line.device.startswith("n0/") for line in lines if line.time_s > 20.05)


def test_calls_that_fit_nowhere_fail_after_the_wait():
    nodes, devices = nodes_of(1)
    functions = {"f": FunctionSpec("f", GIB, None, Times(1, 0, 0))}
    arrivals = [Arrival(0, "f"), Arrival(2, "f"), Arrival(30, "f")]
    scenario = Scenario(devices, functions, ListedWorkload(arrivals), nodes=nodes, losses=[NodeLoss(1.5, "n0")])
    figures = report("fcfs", 0, simulate(scenario, PolicySettings("fcfs", node_wait_s=10)), devices)
    assert (figures.completed, figures.failed, figures.rejected) == (1, 1, 1)


def test_host_memory_is_bounded_on_each_node():
    nodes, devices = nodes_of(2, devices=1, host_memory_bytes=GIB)
    functions = {name: FunctionSpec(name, GIB, None, Times(1, 1, 0)) for name in "ab"}
    arrivals = [Arrival(4 * number, name) for number in range(4) for name in "ab"]
    scenario = Scenario(devices, functions, ListedWorkload(arrivals), check=True, nodes=nodes)
    lines = []
    simulate(scenario, PolicySettings("fcfs"), on_dispatch=lines.append)
    assert [line.start for line in lines[2:]] == ["warm"] * 6  # one on each node, where both fit together


def test_the_command_line_loses_a_node(tmp_path):
    (tmp_path / "A.csv").write_text("time_s,function\n" + "".join(f"{n / 4},f\n" for n in range(80)))
    (tmp_path / "F.csv").write_text("name,run_s,cold_s,memory_mib\nf,1,0.5,100\n")
    (tmp_path / "D.toml").write_text('[nodes.n]\ncount = 3\ndevices = "gpu:2"\n')
    files = ["--arrivals", str(tmp_path / "A.csv"), "--functions", str(tmp_path / "F.csv")]
    spec = ["--device-spec", str(tmp_path / "D.toml"), "--json", str(tmp_path / "out.json")]
    done = CliRunner().invoke(app, ["simulate", *files, *spec, "--policy", "fair_resident", "--lose", "n-2@10.1"])
    assert done.exit_code == 0, done.output
    (run,) = json.loads((tmp_path / "out.json").read_text())["runs"]
    assert run["completed"] + run["failed"] == 80
    wrong = CliRunner().invoke(app, ["simulate", *files, *spec, "--devices", "2"])
    assert "the nodes in" in wrong.output + str(wrong.exception)


def efficiency(count):
    """Return the part of the offered calls that is completed in their time, at a load of 0.8 with equal nodes."""
    nodes, devices = nodes_of(count)
    functions = {
        f"{node.name}-{number}": FunctionSpec(f"{node.name}-{number}", GIB, None, Times(run_s, 0.5, 0.1))
        for node in nodes
        for number, run_s in enumerate((0.1, 0.2, 0.5, 1, 2))
    }
    load = WorkloadSpec(load=0.8, devices=len(devices), duration_s=100)
    workload = ListedWorkload(make_arrivals(functions, load))
    scenario = Scenario(devices, functions, workload, nodes=nodes)
    figures = report("fair_resident", 0, simulate(scenario, PolicySettings("fair_resident")), devices)
    return workload.arrivals[-1].time_s / figures.makespan_s


def test_throughput_per_node_is_the_same_on_one_node_and_on_many():
    assert efficiency(18) >= 0.95 * efficiency(1)
