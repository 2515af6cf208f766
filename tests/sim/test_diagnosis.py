"""The words that end a comparison of policies."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.diagnosis import diagnose
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report
from aliquot.sim.tables import assumptions


def told(scenario, *policies, **settings):
    runs = [PolicySettings(policy, **settings) for policy in policies]
    reports = [report(run.queueing, 0, simulate(scenario, run), scenario.devices) for run in runs]
    return " ".join(diagnose(reports, scenario))


def scenario(arrivals, functions, memory_gib=16, concurrency=1):
    devices = [DeviceSpec("gpu-1", memory_bytes=memory_gib * GIB, concurrency=concurrency)]
    return Scenario(devices, {each.name: each for each in functions}, ListedWorkload(arrivals))


def function(name, run_s, cold_s=0.0, gib=1):
    return FunctionSpec(name, gib * GIB, times=Times(run_s, cold_s, 0))


def test_the_best_policy_and_the_reason_of_the_order():
    arrivals = [Arrival(0, "long")] * 3 + [Arrival(0, "short")] * 30
    words = told(scenario(arrivals, [function("long", 60), function("short", 0.1)]), "fcfs", "sjf")
    assert words.startswith("sjf has the shortest mean latency")
    assert "fcfs takes" in words
    assert "by order: long calls run before short ones" in words


def test_cold_starts_are_named_where_they_are_the_reason():
    arrivals = [Arrival(60 * number, name) for number in range(20) for name in ("a", "b")]
    made = scenario(arrivals, [function("a", 1, 20), function("b", 1, 20)])
    kept = report("kept", 0, simulate(made, PolicySettings("fcfs", pool_slots=4)), made.devices)
    thrown = report("thrown", 0, simulate(made, PolicySettings("fcfs", pool_slots=1)), made.devices)
    words = " ".join(diagnose([thrown, kept], made))
    assert "kept has the shortest mean latency" in words
    assert "thrown takes" in words
    assert "by cold starts: 100.0% of the calls, not 5.0%" in words


@pytest.mark.parametrize(
    ("arrivals", "functions", "expected"),
    [
        ([Arrival(0, "a")] * 50, [function("a", 1)], "the load is what they wait for"),
        ([Arrival(60 * n, "a") for n in range(9)], [function("a", 1)], "More devices would change little"),
        (
            [Arrival(6 * n, name) for n in range(30) for name in "abc"],
            [function(name, 0.5, 4, gib=10) for name in "abc"],
            "memory is what they wait for (30 GiB of functions on 16 GiB of devices)",
        ),
    ],
)
def test_what_the_calls_of_the_best_policy_wait_for(arrivals, functions, expected):
    assert expected in told(scenario(arrivals, functions), "fcfs", pool_slots=1 if len(functions) > 1 else None)


def test_a_trace_without_an_end_is_said():
    assert told(scenario([], [function("a", 1)]), "fcfs") == "No call ended, so there is nothing to compare."


def test_the_line_above_a_table_says_what_is_assumed():
    line = assumptions(scenario([], [function("a", 1)]), [PolicySettings("fcfs", pool_slots=0)])
    assert line == (
        "1 device, memory 16 GiB, D = 1, interference off, private bus, sharing hard, pool unbounded, "
        "host memory unbounded"
    )
