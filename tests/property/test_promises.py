"""Properties of promises: random failures lose no call, nothing is overbooked, and exact times break none."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import examples_divided_by

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, GraphSpec, GraphStage, Times
from aliquot.core.units import GIB
from aliquot.policies.admission import ADMISSION
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import report
from aliquot.testing.builders import device, function
from aliquot.testing.chaos import ChaosShell

DECIDING = sorted(name for name, policy in ADMISSION.items() if policy.decides)


@pytest.mark.parametrize("admission", DECIDING)
@pytest.mark.parametrize("policy", sorted(QUEUEING))
@examples_divided_by(6)
@given(
    seed=st.integers(0, 2**32),
    host_memory_bytes=st.sampled_from([None, 4 * GIB]),
    extra_slots=st.integers(0, 3),
)
def test_random_failures_lose_no_promised_call(policy, admission, seed, host_memory_bytes, extra_slots):
    chaos = ChaosShell(
        policy,
        devices=[
            device("gpu-1", concurrency=2, memory_bytes=4 * GIB),
            device("gpu-2", concurrency=3, memory_bytes=3 * GIB),
            replace(device("cpu-1", kind="cpu", concurrency=4, memory_bytes=None), extra_slots=extra_slots, lanes=2),
        ],
        functions=[
            function("small", datasets=("images",)),
            replace(function("large", memory_bytes=3 * GIB, share=0.7, run_s=5), runs_ahead=True),
            replace(function("host", share=0), host_bytes=GIB, runs_ahead=True),
            replace(function("unknown", run_s=None, weight=2), host_bytes=GIB),
            replace(function("few"), instances=1),
            replace(function("batched", run_s=0.5), batch=3),
            function("either", times_by_kind={"cpu": Times(5, 1, 0)}),
            function("both", share=2, memory_bytes=2 * GIB),
        ],
        seed=seed,
        keepalive="fixed_ttl",
        params={"fixed_ttl": {"ttl_s": "5"}},
        host_memory_bytes=host_memory_bytes,
        admission=admission,
    )
    chaos.run_steps(120)
    assert chaos.ended


@st.composite
def exact_graphs(draw, functions):
    """Make at most one graph, whose stages wait for some of those before them and may be skipped."""
    if draw(st.booleans()):
        return {}
    stages = []
    for number in range(draw(st.integers(1, 5))):
        after = tuple(stage.name for stage in stages if draw(st.booleans()))
        probability = draw(st.sampled_from([1, 1, 0.5]))
        stages.append(GraphStage(f"s{number}", draw(st.sampled_from(functions)), after, probability))
    return {"graph": GraphSpec("graph", tuple(stages))}


@st.composite
def exact_scenarios(draw):
    """Make calls with limits, and functions that run exactly as long as they declare."""
    functions = {}
    for name in "fgh"[: draw(st.integers(1, 3))]:
        run_s = draw(st.sampled_from([0.01, 0.05, 0.2]))
        cpu = {"cpu": Times(3 * run_s, 0.02, 0)} if draw(st.booleans()) else {}
        batch = draw(st.sampled_from([1, 4]))
        batch_s = {4: 2 * run_s} if batch > 1 else {}
        times = Times(run_s, draw(st.sampled_from([0, 0.1])), draw(st.sampled_from([0, 0.03])), batch_s)
        share = draw(st.sampled_from([None, None, 1.0]))
        functions[name] = FunctionSpec(name, GIB, share, times, cpu, batch=batch)
    graphs = draw(exact_graphs(sorted(functions)))
    arrivals = [
        Arrival(
            draw(st.integers(0, 60)) / 20,
            draw(st.sampled_from([*sorted(functions), *graphs])),
            draw(st.sampled_from(["ann", "bob"])),
            deadline_s=draw(st.sampled_from([None, 0.02, 0.1, 0.3, 1, 5])),
            cost_limit=draw(st.sampled_from([None, None, 5, 100])),
        )
        for _ in range(draw(st.integers(1, 60)))
    ]
    memory = draw(st.sampled_from([None, 2 * GIB, 3 * GIB]))
    devices = [DeviceSpec("gpu-1", "gpu", memory, draw(st.integers(1, 3)))]
    devices += (
        [DeviceSpec("cpu-1", "cpu", None, 2)] if any("cpu" in f.times_by_kind for f in functions.values()) else []
    )
    return Scenario(devices, functions, ListedWorkload(arrivals), check=True, graphs=graphs)


@pytest.mark.parametrize("policy", ["fcfs", "fair_resident", "mqfq_sticky"])
@examples_divided_by(3)
@given(scenario=exact_scenarios())
def test_with_exact_times_no_promise_is_broken_whatever_arrives(policy, scenario):
    settings = PolicySettings(policy, admission="reservation", params={"reservation": {"margin_s": "0"}})
    lines = []
    recorder = simulate(scenario, settings, on_end=lines.append)
    slo = report(policy, 0, recorder, scenario.devices).slo
    assert slo.broken == {}
    assert slo.kept == slo.promised
    ended = Counter((line.function, line.tenant) for line in lines)  # with the stages of executions
    assert not Counter((each.function, each.tenant) for each in scenario.workload) - ended
    assert all(line.met for line in lines if line.promised)
