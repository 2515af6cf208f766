"""The trace of a run for Perfetto: each call is in it once, and what begins ends."""

from collections import Counter

import pytest
from recorded_steps import EPOCH_S, recorded_steps

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.live.history.chrome_trace import ChromeTrace
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario

FUNCTIONS = [
    FunctionSpec("short", GIB, times=Times(0.3, 0.5, 0.1)),
    FunctionSpec("large", 3 * GIB, times=Times(1.5, 2, 0.4)),
    FunctionSpec("net", GIB, times=Times(0.5, 0.5, 0.1, {4: 0.8}), batch=4),
]


def scenario():
    devices = [DeviceSpec(f"gpu-{n}", memory_bytes=4 * GIB, concurrency=2) for n in (1, 2)]
    arrivals = [Arrival(0.08 * n, FUNCTIONS[n * n % 7 % 3].name, "ab"[n % 2]) for n in range(150)]
    return Scenario(devices, {each.name: each for each in FUNCTIONS}, ListedWorkload(arrivals))


def trace(from_s=0.0, policy="fair_resident"):
    made = ChromeTrace(EPOCH_S + from_s)
    return [event for step, at in recorded_steps(scenario(), PolicySettings(policy)) for event in made.take(step, at)]


@pytest.fixture(scope="module")
def events():
    return trace()


def of_phase(events, phase, **wanted):
    return [event for event in events if event["ph"] == phase and all(event.get(key) == wanted[key] for key in wanted)]


def test_each_call_has_an_arrival_a_wait_and_an_arrow_to_its_run(events):
    assert len(of_phase(events, "X", name="arrived")) == 150
    begun, ended = of_phase(events, "b", cat="wait"), of_phase(events, "e", cat="wait")
    assert sorted(event["id"] for event in begun) == sorted(event["id"] for event in ended)
    assert len({event["id"] for event in begun}) == 150
    arrows, heads = of_phase(events, "s"), of_phase(events, "f")
    assert sorted(event["id"] for event in arrows) == sorted(event["id"] for event in heads) == list(range(1, 151))


def test_members_of_a_batch_share_a_slice(events):
    runs = [event for event in of_phase(events, "X") if "start" in event["args"]]
    assert sum(event["args"].get("together", 1) for event in runs) == 150
    assert any(event["args"].get("together", 1) > 1 for event in runs)


def test_slices_of_one_sandbox_follow_each_other(events):
    ends = {}
    for event in sorted(of_phase(events, "X"), key=lambda event: event["ts"]):
        thread = event["pid"], event["tid"]
        if event["name"] != "arrived":
            assert event["ts"] >= ends.get(thread, 0) - 1  # epoch seconds have a resolution of about a quarter
            ends[thread] = event["ts"] + event["dur"]


def test_processes_and_threads_have_names(events):
    processes = {event["pid"]: event["args"]["name"] for event in of_phase(events, "M", name="process_name")}
    assert sorted(processes.values()) == ["gpu-1", "gpu-2", "queues"]
    named = {(event["pid"], event["tid"]) for event in of_phase(events, "M", name="thread_name")}
    assert {(event["pid"], event["tid"]) for event in of_phase(events, "X")} <= named


def test_evictions_are_marks_with_their_reason(events):
    marks = of_phase(events, "i")
    assert {event["name"] for event in marks} <= {"stopped", "swapped out"}
    assert marks
    assert all(event["args"]["reason"] for event in marks)


def test_counters_end_at_zero(events):
    last = {(event["pid"], event["name"]): event["args"] for event in of_phase(events, "C")}
    assert [*Counter(value for args in last.values() for value in args.values())] == [0]


def test_only_the_end_of_a_run_is_written():
    shown = trace(from_s=6.0)
    assert 0 < len(of_phase(shown, "X", name="arrived")) < 150
    assert {event["id"] for event in of_phase(shown, "e", cat="wait")} == {
        event["id"] for event in of_phase(shown, "b", cat="wait")
    }
    assert min(event["ts"] + event.get("dur", 0) for event in shown if "ts" in event) >= 0
