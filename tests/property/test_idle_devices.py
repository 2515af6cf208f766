"""No call waits beside an idle device for longer than the start that waiting saves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import functions, times

from aliquot.config import PolicySettings
from aliquot.core.device_index import MAX_CANDIDATES
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.queueing.parts.expected_end import MANY_WAITS
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario, Simulation

TOLERANCE_S = 1e-6


@st.composite
def scenarios_of_alike_devices(draw):
    """Return devices on which every function fits, so that a call that waits could run on any idle one."""
    called = draw(functions(simple=True))
    listed = st.tuples(
        st.sampled_from([0, 0, 0.1, 0.3, 1, 2, 3, 4, 5, 8, 13, 20]),
        st.sampled_from(sorted(called)),
        st.sampled_from(["default", "ann"]),
        st.one_of(st.none(), times),  # often not the declared run time
    )
    devices = [
        DeviceSpec(f"gpu-{number}", memory_bytes=draw(st.integers(4, 9)), concurrency=draw(st.integers(1, 2)))
        for number in range(draw(st.integers(1, 4)))
    ]
    arrivals = [Arrival(*each) for each in draw(st.lists(listed, max_size=60))]
    curve = draw(st.sampled_from([None, InterferenceCurve(V100_STRETCH)]))
    return Scenario(devices, called, ListedWorkload(arrivals), interference=curve)


def longest_idle_waits(scenario, settings):
    """Return, by function, how long its head waited while a device on which nothing ran could have taken it."""
    simulation = Simulation(scenario, settings, scenario.workload.overview(), QUEUEING, None)
    since = {}  # by flow: its head, and the time since which a device is idle
    longest_s = dict.fromkeys(scenario.functions, 0.0)
    for now in simulation.moments():
        for flow, (_, began) in since.items():
            longest_s[flow.key.function] = max(longest_s[flow.key.function], now - began)
        before, since = since, {}
        for flow in simulation.scheduler.registry.flows.values():
            view = flow.domain.view
            if flow.queued and any(not each.running and view.can_start(flow, each) for each in view.devices):
                head, began = before.get(flow, (None, now))
                since[flow] = (flow.head.id, began if head == flow.head.id else now)
    return longest_s


@given(scenario=scenarios_of_alike_devices(), pool_slots=st.sampled_from([0, 2]))
def test_no_call_waits_beside_an_idle_device_for_longer_than_the_start_that_it_saves(scenario, pool_slots):
    waits = longest_idle_waits(scenario, PolicySettings("fair_resident", pool_slots=pool_slots))
    for name, waited_s in waits.items():
        own = scenario.functions[name].times
        start_s = max(own.cold_s, own.load_s)
        displaced_s = own.load_s + (start_s if pool_slots else 0)
        assert waited_s <= start_s + displaced_s + TOLERANCE_S, name


def test_a_run_that_is_never_over_when_expected_is_not_waited_for_beyond_the_start():
    devices = [DeviceSpec(f"gpu-{number}", memory_bytes=4, concurrency=1) for number in range(2)]
    called = {
        "f": FunctionSpec("f", 4, times=Times(0, 0, 0.1)),
        "other": FunctionSpec("other", 4, times=Times(0, 0, 0)),
    }
    arrivals = [Arrival(0, "other"), Arrival(0, "f", "ann", 1), Arrival(0, "f", "ann")]  # it runs for 1 s, not for 0
    waits = longest_idle_waits(Scenario(devices, called, ListedWorkload(arrivals)), PolicySettings("fair_resident"))
    assert 0 < waits["f"] <= 0.1 + 0.1 + TOLERANCE_S


@pytest.mark.parametrize(("count", "starts"), [(MAX_CANDIDATES, 1), (MAX_CANDIDATES + 1, MANY_WAITS)])
def test_a_call_of_a_flow_with_many_late_runs_does_not_wait_for_the_next_of_them(count, starts):
    """All runs take ten times as long as declared, so that one of them always seems to be about to end."""
    devices = [DeviceSpec(f"gpu-{number}", concurrency=1) for number in range(count)]
    own = FunctionSpec("f", times=Times(1, 0.1, 0))
    arrivals = [Arrival(number / 20, "f", run_s=10) for number in range(50)]
    scenario = Scenario(devices, {"f": own}, ListedWorkload(arrivals))
    waited_s = longest_idle_waits(scenario, PolicySettings("fair_resident"))["f"]
    assert 0 < waited_s <= starts * own.times.cold_s + TOLERANCE_S
