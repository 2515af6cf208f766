"""Simulations of calls with deadlines and cost limits."""

import csv
import json
from itertools import accumulate
from random import Random

import pytest
from typer.testing import CliRunner

from aliquot.cli.app import app
from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report


@pytest.fixture
def files(tmp_path):
    """Write a trace of two calls that run after each other on a device with a price."""
    (tmp_path / "functions.csv").write_text("name,run_s,cold_s,memory_mib\nf,1,0.5,1\n")
    (tmp_path / "arrivals.csv").write_text(
        "time_s,function,deadline_s,cost_limit,late\n0,f,2,,\n0,f,2,100,drop\n0,f,,,run\n"
    )
    (tmp_path / "devices.toml").write_text("[gpu]\nprice = 60\nconcurrency = 1\nlanes = 1\n")
    return tmp_path


def simulated(files, *options):
    """Simulate the trace, and return the lines of its calls and the figures of its objectives."""
    inputs = [
        f"--{name}={files / file}" for name, file in [("arrivals", "arrivals.csv"), ("functions", "functions.csv")]
    ]
    outputs = [f"--calls={files / 'calls.csv'}", f"--json={files / 'out.json'}"]
    command = ["simulate", *inputs, *outputs, f"--device-spec={files / 'devices.toml'}", "--policy=fcfs", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    with (files / "calls.csv").open() as file:
        lines = list(csv.DictReader(file))
    return lines, json.loads((files / "out.json").read_text())["runs"][0]["slo"]


def test_the_file_of_calls_says_what_met_its_limits_and_what_it_cost(files):
    lines, slo = simulated(files, "--admission=accept_all", "--check")
    assert [(line["end"], line["promised"], line["met"], line["blame"]) for line in lines] == [
        ("completed", "0", "1", ""),
        ("completed", "0", "0", ""),
        ("completed", "0", "", ""),
    ]
    assert [float(line["cost"]) for line in lines] == [90, 60, 60]  # the first one pays for its start
    assert slo["cost"] == 210
    assert (slo["promised"], slo["kept"], slo["broken"], slo["refused"]) == (0, 0, {}, {})


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("arrivals.csv", "time_s,function,late\n0,f,never\n", "late is 'never'; it takes run or drop"),
        ("devices.toml", "[gpu]\nprice = -1\n", "price is -1.0; it takes the price of a second, 0 or more"),
        ("devices.toml", "[gpu]\nlanes = 0\n", "lanes is 0; it takes 1 or more, and at most the concurrency"),
    ],
)
def test_wrong_input_is_named(files, file, text, complaint):
    (files / file).write_text(text)
    with pytest.raises(AssertionError) as failure:
        simulated(files)
    assert complaint in " ".join(str(failure.value).split())


def test_a_second_of_a_device_has_a_price():
    assert DeviceSpec("gpu-1").price_s == 1000
    assert DeviceSpec("cpu-1", "cpu", concurrency=3).price_s == pytest.approx(50)
    assert DeviceSpec("gpu-1", price=7).price_s == 7
    assert [DeviceSpec("gpu-1", concurrency=16, lanes=lanes).lane_count for lanes in (None, 3)] == [8, 3]


def calls_in_time(**rules):
    """Return how many of 1000 calls are in time that come three times as fast as two lanes run them one by one."""
    random = Random(1)
    times = accumulate(random.expovariate(600) for _ in range(1000))
    arrivals = [Arrival(round(time_s, 6), "f", deadline_s=0.05) for time_s in times]
    batches = {2: 0.012, 4: 0.016, 8: 0.024}
    functions = {"f": FunctionSpec("f", times=Times(0.01, 0.1, 0, batches), batch=8)}
    devices = [DeviceSpec("gpu-1", concurrency=2)]
    settings = PolicySettings(
        "fair_resident", admission="reservation", params={"reservation": {"margin_s": "0", **rules}}
    )
    recorder = simulate(Scenario(devices, functions, ListedWorkload(arrivals)), settings)
    slo = report("", 0, recorder, devices).slo
    assert slo.kept == slo.promised == slo.met
    return slo.kept


def test_blocks_of_a_target_size_keep_far_more_calls_in_time():
    assert calls_in_time() >= 1.5 * calls_in_time(target_sizes="false")


@pytest.mark.parametrize(("share", "concurrency"), [(None, 1), (1, 100)])
def test_a_flood_of_promised_calls_leaves_a_part_of_the_lanes_to_plain_calls(share, concurrency):
    """Calls with a deadline come at twice the rate that the lane completes, and a plain call each second."""
    tight = [Arrival(round(number / 66, 6), "tight", deadline_s=0.4) for number in range(260)]
    arrivals = sorted([*tight, *(Arrival(number + 0.5, "plain") for number in range(3))], key=lambda one: one.time_s)
    functions = {name: FunctionSpec(name, share=share, times=Times(0.03, 0, 0)) for name in ("tight", "plain")}
    scenario = Scenario([DeviceSpec("gpu-1", concurrency=concurrency)], functions, ListedWorkload(arrivals), check=True)
    lines = []
    simulate(scenario, PolicySettings("fair_resident", admission="reservation"), on_end=lines.append)
    assert not [line for line in lines if line.promised and not line.met]
    waits = [line.ended_s - line.arrived_s for line in lines if line.met is None]
    assert len(waits) == 3
    assert max(waits) < 1
