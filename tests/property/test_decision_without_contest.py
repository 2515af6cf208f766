"""A call that arrives while nothing waits is dispatched without a queue, with the same commands as through one."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import examples_divided_by, scenarios

from aliquot.config import PolicySettings
from aliquot.core.commands import Complete, Dispatch, Run
from aliquot.core.events import InvocationArrived, RunFinished, SandboxStarted
from aliquot.core.interfaces import Queueing
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, Simulation
from aliquot.sim.workloads import WorkloadSpec, make_arrivals, make_functions
from aliquot.testing import Harness, device, function

SHORT = ("fair_resident", "fcfs")  # policies that decide about such a call at once


def through_the_queue(policy):
    """Return the policy without its short way."""
    return type(policy.__name__, (policy,), {"choose_alone": Queueing.choose_alone})


def all_commands(scenario, settings, queueing):
    """Return the commands of every step with the time, and how many calls were in no queue."""
    simulation = Simulation(scenario, settings, scenario.workload.overview(), queueing, None)
    dispatcher, step = simulation.scheduler._dispatcher, simulation.scheduler.step
    dispatch_alone = dispatcher.dispatch_alone
    commands, alone = [], []

    def logged_step(now, events):
        done = step(now, events)
        commands.append((now, done))
        return done

    def logged_dispatch(invocation, domains, *, now):
        alone.append(dispatch_alone(invocation, domains, now=now))
        return alone[-1]

    simulation.scheduler.step, dispatcher.dispatch_alone = logged_step, logged_dispatch
    for _ in simulation.moments():
        pass
    return commands, sum(alone)


@st.composite
def quiet_scenarios(draw):
    """Return scenarios with many calls that are far apart, so that most of them find nothing waiting."""
    scenario, random = draw(scenarios()), Random(draw(st.integers(0, 2**32)))
    tenants = draw(st.sampled_from([["default"], ["default"], ["ann", "bob"]]))
    sessions = draw(st.sampled_from([[None], [None, "s1", "s2"]]))
    names, now, arrivals = sorted(scenario.functions), 0.0, []
    for _ in range(150):
        now += random.choice([0, 0.1, 1, 2, 5])
        run_s, tenant, session = random.choice([None, 0.1, 3]), random.choice(tenants), random.choice(sessions)
        arrivals.append(Arrival(now, random.choice(names), tenant, run_s, None, None, session))
    return replace(scenario, workload=ListedWorkload(arrivals))


@pytest.mark.parametrize("policy", SHORT)
@examples_divided_by(2)
@given(scenario=quiet_scenarios(), pool_slots=st.sampled_from([0, 0, 3]))
def test_the_short_way_and_the_long_way_give_the_same_commands(policy, scenario, pool_slots):
    settings = PolicySettings(policy, pool_slots=pool_slots)
    queued = {**QUEUEING, policy: through_the_queue(QUEUEING[policy])}
    short, _ = all_commands(scenario, settings, QUEUEING)
    long, alone = all_commands(scenario, settings, queued)
    assert alone == 0
    assert short == long


@pytest.mark.parametrize("policy", SHORT)
def test_they_give_the_same_commands_where_memory_is_moved_all_the_time(policy):
    functions = make_functions(20, 0)
    arrivals = ListedWorkload(
        make_arrivals(functions, WorkloadSpec(load=0.5, devices=3, duration_s=3000, process="bursty", run_cv=1))
    )
    devices = [device(f"gpu-{number}", memory_bytes=8 * GIB, concurrency=2) for number in range(3)]
    scenario, settings = Scenario(devices, functions, arrivals), PolicySettings(policy)
    short, alone = all_commands(scenario, settings, QUEUEING)
    long, _ = all_commands(scenario, settings, {**QUEUEING, policy: through_the_queue(QUEUEING[policy])})
    assert alone > len(arrivals.arrivals) // 3
    assert short == long


@pytest.mark.parametrize("policy", SHORT)
def test_a_warm_call_without_a_contest_is_never_queued(policy):
    harness = Harness(policy, devices=[device(concurrency=2)], functions=[function("f"), function("g", share=0.5)])
    names = ["f", "g"]
    for number, name in enumerate(names):
        start = harness.send(InvocationArrived(f"cold{number}", "default", name), at=number)[0]
        harness.send(SandboxStarted(start.sandbox))
        harness.send(RunFinished(f"cold{number}", start.sandbox, 0))

    def enqueued(*_):
        raise AssertionError("the call went through its queue")

    harness.flow("f").domain.policy.enqueued = enqueued
    for number, name in enumerate(names):
        done = harness.send(InvocationArrived(str(number), "default", name), at=5 + number)
        assert [type(command) for command in done] == [Dispatch, Run]
        done = harness.send(RunFinished(str(number), done[1].sandbox, 1))
        assert type(done[0]) is Complete
