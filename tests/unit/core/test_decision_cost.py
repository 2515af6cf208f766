"""The cost of a decision must not grow with flows, sandboxes or devices. It is counted exactly, in bytecodes."""

import pytest
from bytecodes import BytecodeCounter
from msgspec.structs import replace

from aliquot.core.commands import Fetch, Run, StartSandbox
from aliquot.core.events import (
    FetchEnded,
    FilesPredicted,
    FunctionDeployed,
    FunctionRemoved,
    InvocationArrived,
    LikelyFile,
    RunFinished,
    SandboxStarted,
    SessionBegan,
)
from aliquot.core.invariants import check
from aliquot.core.model import DeviceSpec
from aliquot.policies.queueing import QUEUEING
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import of_type

WARM_UP, MEASURED = 30, 60


def busy_scheduler(policy, flows):
    """Give every flow a sandbox and a queued call, with all slots taken."""
    names = [f"f{number}" for number in range(flows)]
    harness = Harness(
        policy,
        devices=[device("gpu-1", concurrency=2, memory_bytes=None), device("gpu-2", concurrency=2, memory_bytes=None)],
        functions=[function(name, cold_s=0, memory_bytes=1) for name in names],
    )
    return harness.scheduler, names


def opcodes_per_call(policy, flows, sessions=0):
    scheduler, names = busy_scheduler(policy, flows)
    running, calls = [], 0

    def step(events):
        commands = scheduler.step(scheduler.now + 0.001, events)
        running.extend(of_type(Run, commands))
        for command in of_type(StartSandbox, commands):
            running.extend(of_type(Run, scheduler.step(scheduler.now, [SandboxStarted(command.sandbox)])))

    step([InvocationArrived(f"x{name}", "default", name) for name in names])
    step([InvocationArrived(f"y{name}", "default", name) for name in names])

    def turn():
        nonlocal calls
        calls += 1
        done = running.pop(0)
        step([RunFinished(done.invocation, done.sandbox, 1)])
        session = f"s{calls % sessions}" if sessions else None
        step([InvocationArrived(f"z{calls}", "default", names[calls % len(names)], session=session)])

    for _ in range(WARM_UP + sessions):
        turn()
    with BytecodeCounter() as counter:
        for _ in range(MEASURED):
            turn()
    return counter.count / MEASURED


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_call_costs_about_the_same_with_ten_and_with_two_thousand_flows(policy):
    few, many = opcodes_per_call(policy, 10), opcodes_per_call(policy, 2000)
    assert many <= 1.5 * few, f"{few:.0f} bytecodes with 10 flows, {many:.0f} with 2000"


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_call_of_a_session_costs_about_the_same_with_ten_and_with_a_thousand_sessions(policy):
    few, many = opcodes_per_call(policy, 10, sessions=10), opcodes_per_call(policy, 10, sessions=1000)
    assert many <= 1.5 * few, f"{few:.0f} bytecodes with 10 sessions, {many:.0f} with 1000"


def opcodes_per_prediction(sessions):
    """Give every session more to fetch than the budget allows, while predictions come and fetches end."""
    harness = Harness(devices=[device()], functions=[function("f", datasets=("d",))])
    scheduler, under_way = harness.scheduler, []

    def turn(number):
        session = f"s{number % sessions}"
        files = tuple(LikelyFile("d", f"{session}/{place}", 2**26, 0.9) for place in range(number % 2, 8))
        events = [FilesPredicted("default", session, "markov1", files)]
        events += [FetchEnded(fetch.fetch, 1) for fetch in under_way[:1]]
        under_way[:1] = []
        under_way.extend(of_type(Fetch, scheduler.step(scheduler.now + 0.001, events)))

    scheduler.step(0, [SessionBegan("default", f"s{number}") for number in range(sessions)])
    for number in range(WARM_UP + sessions):
        turn(number)
    with BytecodeCounter() as counter:
        for number in range(MEASURED):
            turn(WARM_UP + sessions + number)
    return counter.count / MEASURED


def test_a_prediction_costs_about_the_same_with_ten_and_with_a_thousand_sessions():
    few, many = opcodes_per_prediction(10), opcodes_per_prediction(1000)
    assert many <= 1.5 * few, f"{few:.0f} bytecodes with 10 sessions, {many:.0f} with 1000"


def opcodes_per_extra_slot(tenants):
    """Let a tenant hold all plain slots, while all others wait for the extra ones."""
    harness = Harness("fcfs", devices=[DeviceSpec("cpu", "cpu", None, 2, extra_slots=2)])
    scheduler, calls = harness.scheduler, 0
    names = ["greedy", *(f"t{number}" for number in range(tenants))]
    scheduler.step(0, [FunctionDeployed(name, function("f", share=0, cold_s=0)) for name in names])
    running = []

    def step(events):
        for command in scheduler.step(scheduler.now + 0.001, events):
            if isinstance(command, StartSandbox):
                step([SandboxStarted(command.sandbox)])
            elif isinstance(command, Run):
                running.append(command)

    def arrive(tenant):
        nonlocal calls
        calls += 1
        return InvocationArrived(f"{tenant}/{calls}", tenant, "f")

    step([arrive("greedy"), arrive("greedy")])
    running.clear()  # they never end
    step([arrive(name) for name in names])

    def turn():
        done = running.pop(0)
        step([RunFinished(done.invocation, done.sandbox, 1)])
        step([arrive(done.invocation.partition("/")[0])])

    for _ in range(WARM_UP + tenants):
        turn()
    with BytecodeCounter() as counter:
        for _ in range(MEASURED):
            turn()
    return counter.count / MEASURED


def test_an_extra_slot_costs_about_the_same_with_ten_and_with_a_thousand_tenants():
    few, many = opcodes_per_extra_slot(10), opcodes_per_extra_slot(1000)
    assert many <= 1.5 * few, f"{few:.0f} bytecodes with 10 tenants, {many:.0f} with 1000"


def opcodes_per_call_on(policy, devices, load, *, share=None, nodes=1):
    """Let ten flows use this part of the slots, with a backlog if it is all of them, and count a finish and a call."""
    names = [f"f{number}" for number in range(10)]
    harness = Harness(
        policy,
        devices=[
            replace(device(f"gpu-{number}", concurrency=2, memory_bytes=100), node=f"n{number % nodes}")
            for number in range(devices)
        ],
        functions=[function(name, cold_s=0.5, load_s=0.1, memory_bytes=1, share=share) for name in names],
    )
    in_flight = devices if load == "half" else 2 * devices
    scheduler, running, calls = harness.scheduler, [], 0

    def step(events):
        commands = scheduler.step(scheduler.now + 0.5 / in_flight, events)  # two steps a call, so a run takes a second
        running.extend(of_type(Run, commands))
        while started := [SandboxStarted(command.sandbox) for command in of_type(StartSandbox, commands)]:
            commands = scheduler.step(scheduler.now, started)
            running.extend(of_type(Run, commands))

    def call():
        nonlocal calls
        calls += 1
        return InvocationArrived(str(calls), "default", names[calls * 7 % 10])

    def turn():
        done = running.pop(0)
        step([RunFinished(done.invocation, done.sandbox, 1)])
        step([call()])

    for _ in range(in_flight):
        step([call()])
    if load == "full":
        step([call() for _ in range(20)])
    for _ in range(WARM_UP + devices):
        turn()
    with BytecodeCounter() as counter:
        for _ in range(MEASURED):
            turn()
    check(scheduler)
    return counter.count / MEASURED


@pytest.mark.parametrize("load", ["half", "full"])
@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_call_costs_about_the_same_on_four_and_on_four_hundred_devices(policy, load):
    few, many = opcodes_per_call_on(policy, 4, load), opcodes_per_call_on(policy, 400, load)
    assert many <= 2 * few, f"{few:.0f} bytecodes on 4 devices, {many:.0f} on 400"


@pytest.mark.parametrize("load", ["half", "full"])
def test_a_call_costs_about_the_same_on_four_and_on_four_thousand_devices(load):
    few = opcodes_per_call_on("fair_resident", 4, load)
    many = opcodes_per_call_on("fair_resident", 4000, load, nodes=1000)
    assert many <= 2 * few, f"{few:.0f} bytecodes on 4 devices, {many:.0f} on 4000"


def opcodes_per_removal(policy, flows):
    scheduler, names = busy_scheduler(policy, flows)
    scheduler.step(1, [InvocationArrived(f"x{name}", "default", name) for name in names])
    with BytecodeCounter() as counter:
        scheduler.step(2, [FunctionRemoved("default", names[flows // 2])])
    return counter.count


@pytest.mark.parametrize(
    "policy", sorted(QUEUEING.keys() - {"exclusive"})
)  # it divides all devices among clients again
def test_removing_a_function_costs_about_the_same_with_ten_and_with_a_thousand_flows(policy):
    few, many = opcodes_per_removal(policy, 10), opcodes_per_removal(policy, 1000)
    assert many <= 1.5 * few, f"{few} bytecodes with 10 flows, {many} with 1000"


def test_a_promise_behind_many_blocks_costs_as_much_as_behind_a_few():
    def opcodes(blocks):
        harness = Harness(
            "fcfs",
            devices=[device("gpu-1", concurrency=1, memory_bytes=None)],
            functions=[function("f", run_s=0.01, cold_s=0)],
            admission="reservation",
        )
        for number in range(blocks):
            harness.send(InvocationArrived(f"p{number}", "default", "f", 100 + number))
        counter = BytecodeCounter()
        with counter:
            harness.scheduler.step(0, [InvocationArrived("last", "default", "f", 10_000)])
        return counter.count

    assert opcodes(400) < 1.1 * opcodes(40)
