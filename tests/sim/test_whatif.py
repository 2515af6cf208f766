"""What-if: calls that are recorded from a journal give the same figures when the policy that ran is simulated again."""

import pytest
from msgspec.structs import replace
from recorded_steps import EPOCH_S, recorded_steps

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.whatif.reading import RecordedWindow
from aliquot.whatif.recording import Recording
from aliquot.whatif.running import run_what_if
from aliquot.whatif.scenario import listed_functions, make_scenario

GPU = DeviceSpec("gpu-1", memory_bytes=4 * GIB, concurrency=2)
FUNCTIONS = [
    FunctionSpec("short", GIB, times=Times(None, 0.5, 0.1)),
    FunctionSpec("long", 2 * GIB, times=Times(None, 1.5, 0.3)),
    FunctionSpec("large", 3 * GIB, times=Times(None, 2, 0.4)),
]


def window_of(scenario, settings, from_s=0.0, **options):
    recording = Recording(**options)
    for step, at in recorded_steps(scenario, settings):
        recording.take(step, at)
    return RecordedWindow(recording, settings, (), EPOCH_S + from_s, EPOCH_S + 1000)


def ask(window, runs, **changes):
    recorded = make_scenario(window)
    return run_what_if(window, recorded, make_scenario(window, **changes), runs, lambda *_: None).report


def mixed(functions=FUNCTIONS, devices=(GPU,), count=120, **more):
    names = [function.name for function in functions]
    arrivals = [
        Arrival(0.4 * n, names[n * n % 7 % len(names)], "abc"[n % 3], run_s=0.3 + n % 5 * 0.2) for n in range(count)
    ]
    return Scenario(list(devices), {each.name: each for each in functions}, ListedWorkload(arrivals), **more)


@pytest.mark.parametrize("policy", ["fcfs", "fair_resident", "mqfq_sticky", "sjf", "balance"])
def test_the_policy_that_ran_gives_what_was_measured(policy):
    window = window_of(mixed(tenant_weights={"a": 2}), PolicySettings(policy))
    report = ask(window, [PolicySettings("batch")])
    measured, again = report.measured, report.simulated[0]
    assert measured.calls == again.calls == 120
    assert again.latency_s.mean == pytest.approx(measured.latency_s.mean, rel=0.05)
    assert again.latency_s.p95 == pytest.approx(measured.latency_s.p95, rel=0.1)
    assert again.cold_starts == pytest.approx(measured.cold_starts, abs=1)
    assert not report.error.is_large
    assert again.tenants.keys() == {"a", "b", "c"}


def test_another_policy_gives_what_it_would_have_given_live():
    scenario = mixed()
    other = PolicySettings("sjf")
    told = ask(window_of(scenario, PolicySettings("fcfs")), [other]).simulated[1]
    live = ask(window_of(scenario, other), [other]).measured
    assert told.latency_s.mean == pytest.approx(live.latency_s.mean, rel=0.05)


def test_more_devices_and_other_weights_change_only_the_other_rows():
    window = window_of(mixed(count=200), PolicySettings("fair_resident"))
    same = ask(window, [PolicySettings("fair_resident")])
    changed = ask(window, [PolicySettings("fair_resident")], devices=3, weights={"a": 20})
    assert same.simulated[0].latency_s == same.simulated[1].latency_s == changed.simulated[0].latency_s
    assert changed.simulated[1].latency_s.mean < 0.7 * same.simulated[1].latency_s.mean


def test_calls_before_the_window_only_warm_up():
    window = window_of(mixed(), PolicySettings("fcfs"), from_s=24)
    report = ask(window, [PolicySettings("fcfs")])
    assert report.measured.calls == report.simulated[0].calls == 60
    assert report.simulated[0].cold_starts == report.measured.cold_starts


def test_batches_take_the_time_of_their_size():
    batched = FunctionSpec("net", GIB, times=Times(0.5, 0.5, 0.1, {2: 0.6, 4: 0.8}), batch=4)
    arrivals = [Arrival(0.15 * n, "net") for n in range(80)]
    scenario = Scenario([GPU], {"net": batched}, ListedWorkload(arrivals))
    report = ask(window_of(scenario, PolicySettings("fcfs")), [PolicySettings("fcfs")])
    assert report.simulated[0].latency_s.mean == pytest.approx(report.measured.latency_s.mean, rel=0.05)


def test_times_differ_by_kind_of_device():
    both = FunctionSpec("net", 0, share=0.5, times=Times(0.2, 0.1), times_by_kind={CPU: Times(2.0, 0.1)})
    devices = [replace(GPU, concurrency=2), DeviceSpec("cpu", CPU, concurrency=2)]
    arrivals = [Arrival(3.0 * (n // 4), "net") for n in range(60)]  # two of four at a time run on the cpu
    scenario = Scenario(devices, {"net": both}, ListedWorkload(arrivals))
    report = ask(window_of(scenario, PolicySettings("fcfs")), [PolicySettings("fcfs")])
    assert report.measured.latency_s.p95 > report.measured.latency_s.mean > 1
    assert report.simulated[0].latency_s.mean == pytest.approx(report.measured.latency_s.mean, rel=0.05)


def test_equal_names_of_two_tenants_stay_apart():
    window = window_of(mixed(), PolicySettings("fcfs"))
    assert set(make_scenario(window).functions) == {f"{tenant}/{f.name}" for tenant in "abc" for f in FUNCTIONS}


def test_only_the_newest_calls_are_kept():
    window = window_of(mixed(), PolicySettings("fcfs"), max_calls=50)
    report = ask(window, [PolicySettings("fcfs")])
    assert (report.measured.calls, report.dropped) == (50, 70)


def test_calls_without_an_end_are_left_out_and_counted():
    window = window_of(mixed(), PolicySettings("fcfs"))
    lost = next(reversed(window.recording.calls.values()))
    lost.end = lost.end.OPEN
    report = ask(window, [PolicySettings("fcfs")])
    assert (report.measured.calls, report.left_out) == (119, 1)


def test_a_window_without_calls_is_refused():
    window = window_of(mixed(), PolicySettings("fcfs"), from_s=900)
    with pytest.raises(InputError, match="--last: no call ended in this time; take a longer one"):
        make_scenario(window)


def test_devices_of_a_server_without_accelerators_are_refused():
    plain = FunctionSpec("plain", share=0)
    scenario = mixed([plain], [DeviceSpec("cpu", CPU, concurrency=4)])
    with pytest.raises(InputError, match="--devices: the server has no accelerators"):
        make_scenario(window_of(scenario, PolicySettings("fcfs")), devices=2)


def test_exported_functions_have_their_median_run_times():
    listed = listed_functions(make_scenario(window_of(mixed(FUNCTIONS[:1]), PolicySettings("fcfs"))))
    assert [function.times.run_s for function in listed] == [pytest.approx(0.7, abs=0.2)] * 3
