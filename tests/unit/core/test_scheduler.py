"""The scheduler as a state machine, event by event."""

import pytest
from one_device import one_device

from aliquot.core.commands import (
    Complete,
    Dispatch,
    LoadMemory,
    Purpose,
    Reject,
    Run,
    SetSlice,
    Start,
    StartSandbox,
    StopSandbox,
    UnloadMemory,
    WakeAt,
)
from aliquot.core.errors import EventError, PolicyError
from aliquot.core.events import (
    DeviceAdded,
    DeviceLost,
    FunctionDeployed,
    FunctionRemoved,
    InvocationArrived,
    InvocationCancelled,
    MemoryLoaded,
    RunFinished,
    SandboxLost,
    SandboxStarted,
    TenantWeightSet,
    Woke,
)
from aliquot.core.interfaces import Choice, Queueing
from aliquot.core.lifecycle import INVOCATION, SANDBOX, InvocationState, SandboxState
from aliquot.core.model import Times
from aliquot.core.units import GIB
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type


def test_a_first_call_starts_a_sandbox_and_runs_when_that_is_ready():
    harness = one_device()
    assert harness.call("f", at=1) == [
        StartSandbox(1, "default", "f", ("gpu-1",), "0", Purpose.CALL, "oldest"),
        SetSlice(1, 1, 1, "it starts"),
        Dispatch("0", 1, ("gpu-1",), Start.COLD, "oldest"),
    ]
    assert harness.send(SandboxStarted(1), at=3) == [Run("0", 1)]


def test_a_second_call_finds_the_sandbox_warm():
    harness = one_device()
    harness.run_all(harness.call("f"))
    assert harness.call("f") == [Dispatch("1", 1, ("gpu-1",), Start.WARM, "oldest"), Run("1", 1)]


def test_all_events_of_a_step_are_handled_before_anything_is_decided():
    harness = Harness("balance", devices=[device("gpu-1"), device("gpu-2")], functions=[function("f")])
    harness.ready(harness.call("f", "f"))
    harness.call("f")
    finished = [RunFinished(name, number, 1) for name, number in (("1", 2), ("0", 1))]
    assert dispatched(harness.send(*finished)) == [
        ("2", "gpu-1", "warm")
    ]  # the device that was idle longest, not the first


def test_no_more_than_d_run_on_a_device():
    harness = one_device(concurrency=2)
    assert len(dispatched(harness.call("f", "f", "f"))) == 2


def test_shares_on_a_device_add_up_to_at_most_one():
    harness = Harness(devices=[device(concurrency=4)], functions=[function("f", share=0.4)])
    assert len(dispatched(harness.call("f", "f", "f"))) == 2


def test_three_thirds_are_a_whole():
    harness = Harness(devices=[device(concurrency=3)], functions=[function("f")])
    assert len(dispatched(harness.call("f", "f", "f"))) == 3


def test_two_calls_of_one_function_at_once_are_two_sandboxes_each_with_its_own_bytes():
    harness = one_device(concurrency=2)
    harness.ready(harness.call("f", "f"))
    assert harness.scheduler.registry.device("gpu-1").resident_bytes == 2 * GIB


def test_idle_sandboxes_are_swapped_out_for_one_that_needs_their_bytes():
    harness = one_device(memory_bytes=GIB)
    harness.run_all(harness.call("f"))
    assert harness.call("g") == [
        UnloadMemory(1, "its memory is needed", room_for="1"),
        StartSandbox(2, "default", "g", ("gpu-1",), "1", Purpose.CALL, "oldest"),
        SetSlice(2, 1, 1, "it starts"),
        Dispatch("1", 2, ("gpu-1",), Start.COLD, "oldest"),
    ]


def test_a_swapped_out_sandbox_is_loaded_not_started():
    harness = one_device(memory_bytes=GIB)
    harness.run_all(harness.call("f"))
    harness.run_all(harness.call("g"))
    assert harness.call("f") == [
        UnloadMemory(2, "its memory is needed", room_for="2"),
        LoadMemory(1, "a call was dispatched to it"),
        Dispatch("2", 1, ("gpu-1",), Start.SWAP_IN, "oldest"),
    ]
    assert harness.send(MemoryLoaded(1)) == [Run("2", 1)]


def test_a_running_sandbox_is_never_swapped_out():
    harness = one_device(memory_bytes=GIB, concurrency=2)
    harness.ready(harness.call("f"))
    assert harness.call("g") == []
    assert dispatched(harness.finish("0")) == [("1", "gpu-1", "cold")]


def test_unbounded_memory_keeps_everything_resident():
    harness = Harness(
        "mqfq_sticky",
        devices=[device(memory_bytes=None)],
        functions=[function("f")],
        params={"mqfq_sticky": {"T": "0"}},
    )
    for second in range(40):
        harness.now = second
        harness.run_all(harness.call("f"))
    harness.send(Woke(), at=1000)
    assert not of_type(UnloadMemory, harness.log)
    assert not of_type(StopSandbox, harness.log)


def test_a_function_without_a_gpu_share_runs_on_the_cpu_even_when_the_gpu_is_full():
    harness = Harness(
        devices=[device("gpu-1"), device("cpu-1", kind="cpu")],
        functions=[function("f"), function("host", share=0)],
    )
    harness.call("f", "f")
    assert dispatched(harness.call("host")) == [("2", "cpu-1", "cold")]


def test_a_function_with_times_for_the_cpu_may_use_either():
    both = function("both", times_by_kind={"cpu": Times(5, 1, 0)})
    harness = Harness(devices=[device("gpu-1"), device("cpu-1", kind="cpu")], functions=[both])
    assert [where for _, where, _ in dispatched(harness.call("both", "both"))] == ["gpu-1", "cpu-1"]


def test_domains_take_turns_from_step_to_step():
    both = function("both", times_by_kind={"cpu": Times(5, 1, 0)})
    harness = Harness(devices=[device("gpu-1")], functions=[function("f"), both])
    commands = harness.call("f", "f", "f", "both", "both")
    order = []
    while commands:
        order += [name for name, _, _ in dispatched(commands)]
        commands = harness.run_all(commands)
    assert order == ["0", "3", "1", "4", "2"]


def test_domains_with_a_device_in_common_take_turns_at_it():
    both = function("both", times_by_kind={"cpu": Times(5, 1, 0)})
    harness = Harness(devices=[device("gpu-1", concurrency=2)], functions=[function("f"), both])
    started = dispatched(harness.call("f", "f", "both", "both"))
    assert [name for name, _, _ in started] == ["0", "2"]


def test_estimates_start_from_the_declared_times_and_learn_from_runs():
    harness = Harness(devices=[device(speed=2)], functions=[function("f", run_s=4)])
    assert harness.flow("f").run_estimate_s == 2
    harness.run_all(harness.call("f"), run_s=3)
    assert harness.flow("f").run_estimate_s == pytest.approx(0.9 * 2 + 0.1 * 3)
    assert harness.flow("f").run_estimates_s == {"gpu": pytest.approx(2.1)}


def test_an_estimate_without_a_prior_is_the_first_run():
    harness = Harness(devices=[device()], functions=[function("f", run_s=None)])
    assert harness.flow("f").run_estimate_s is None
    harness.run_all(harness.call("f"), run_s=3)
    assert harness.flow("f").run_estimate_s == 3


def test_a_deadline_is_rounded_to_nanoseconds():
    harness = one_device()
    harness.send(InvocationArrived("x", "default", "f", deadline_s=0.2, cost_limit=3), at=0.1)
    invocation = harness.scheduler.invocations["x"]
    assert (invocation.deadline, invocation.cost_limit) == (0.3, 3)


def test_the_operators_weight_multiplies_the_functions_own():
    harness = Harness(devices=[device()], functions=[function("f", weight=3)], tenant_weights={"default": 2})
    assert harness.flow("f").weight == 6
    harness.send(TenantWeightSet("default", 4))
    assert harness.flow("f").weight == 12


def test_fixed_ttl_stops_a_sandbox_that_was_idle_for_so_long():
    harness = Harness(
        devices=[device()], functions=[function()], keepalive="fixed_ttl", params={"fixed_ttl": {"ttl_s": "10"}}
    )
    harness.run_all(harness.call("f"))
    assert WakeAt(10) in harness.log
    harness.run_all(harness.call("f", at=6))
    assert harness.send(Woke(), at=10) == [WakeAt(16)]  # it was used in the meantime
    assert harness.send(Woke(), at=16) == [StopSandbox(1, "keep-alive is over")]


def test_a_sandbox_that_finishes_loading_after_keep_alive_ended_is_swapped_out():
    harness = Harness(
        "mqfq_sticky",
        devices=[device(concurrency=2)],
        functions=[function("f"), function("g")],
        keepalive="anticipatory",
    )
    for second in (0, 1):
        harness.now = second
        harness.run_all(harness.call("f"))
    assert of_type(UnloadMemory, harness.send(Woke(), at=10))
    loading = harness.call("f", at=10)  # its bytes are being loaded
    harness.send(InvocationCancelled("2"), at=10)
    harness.send(Woke(), at=40)  # the loading is not finished
    assert of_type(UnloadMemory, harness.ready(loading, at=41)) == [UnloadMemory(1, "keep-alive is over")]


def test_a_call_at_the_moment_of_expiry_finds_the_sandbox_still_there():
    harness = Harness(
        devices=[device()], functions=[function()], keepalive="fixed_ttl", params={"fixed_ttl": {"ttl_s": "10"}}
    )
    harness.run_all(harness.call("f"))
    assert dispatched(harness.call("f", at=10)) == [("1", "gpu-1", "warm")]


def test_a_wake_up_that_comes_early_is_asked_for_again():
    harness = Harness(devices=[device()], functions=[function()], keepalive="fixed_ttl")
    harness.run_all(harness.call("f"))
    assert harness.send(Woke(), at=599.999999) == [WakeAt(600)]


def test_run_times_of_an_older_version_do_not_count_for_the_new_one():
    harness = one_device()
    harness.ready(harness.call("f"))
    harness.send(FunctionDeployed("default", function("f", run_s=7)))
    harness.finish("0", run_s=100)
    assert harness.flow("f").run_estimate_s == 7


def test_a_device_added_later_adds_the_prior_of_its_kind():
    harness = Harness(devices=[], functions=[function("f", run_s=4)])
    assert harness.call("f") == [Reject("0", "there are no devices")]
    harness.send(DeviceAdded(device("gpu-1", kind="rtx4090", speed=2)))
    assert harness.flow("f").run_estimates_s == {"rtx4090": 2}


def test_anticipatory_swaps_out_a_flow_that_is_idle_longer_than_usual():
    harness = Harness(devices=[device()], functions=[function()], keepalive="anticipatory")
    for second in (0, 4, 8):
        harness.now = second
        harness.run_all(harness.call("f"))
    assert harness.send(Woke(), at=13.9) == [WakeAt(14)]
    assert harness.send(Woke(), at=14) == [UnloadMemory(1, "keep-alive is over")]  # 8 + 1.5 x 4
    assert dispatched(harness.call("f", at=20)) == [("3", "gpu-1", "swap_in")]


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (SandboxStarted(7), "there never was a sandbox 7"),
        (SandboxStarted(1), "it was not starting: sandbox 1 of f on gpu-1, busy"),
        (MemoryLoaded(1), "it was not loading: sandbox 1 of f on gpu-1, busy"),
        (RunFinished("9", 1, 1), "9 cannot have finished in sandbox 1 of f on gpu-1, busy"),
        (
            InvocationArrived("0", "default", "f"),
            r"arrived twice: invocation 0 of f \(arrived at 0, dispatch at 0, run at 0",
        ),
        (RunFinished("0", 1, float("nan")), "a run time of nan s is impossible: invocation 0 of f"),
        (FunctionDeployed("default", function("f", weight=0)), "function f: weight 0 is not above 0"),
        (FunctionDeployed("default", function("f", share=-1)), "function f: share -1 is neither from 0 to 1 nor"),
        (FunctionDeployed("default", function("f", run_s=float("inf"))), "function f: run_s inf is not 0 or more"),
        (DeviceAdded(device("gpu-2", concurrency=0)), "device gpu-2: concurrency 0 is below 1"),
        (DeviceAdded(device()), "there is a device gpu-1 already"),
        (DeviceLost("gpu-9"), "there is no device gpu-9; there are gpu-1"),
        (TenantWeightSet("default", 0), "weight 0 is not above 0"),
        (FunctionRemoved("default", "h"), "tenant default has no function h"),
    ],
)
def test_an_impossible_event_is_refused_and_changes_nothing(event, complaint):
    harness = one_device()
    harness.ready(harness.call("f"))
    before = harness.scheduler.registry.device("gpu-1").running, list(harness.scheduler.invocations)
    with pytest.raises(EventError, match=complaint):
        harness.send(event)
    assert (harness.scheduler.registry.device("gpu-1").running, list(harness.scheduler.invocations)) == before
    assert harness.finish("0") == [Complete("0")]


def test_the_other_events_of_a_step_are_handled_and_their_commands_come_with_the_next():
    harness = one_device()
    harness.ready(harness.call("f"))
    with pytest.raises(EventError, match="event 1 of 3, SandboxStarted: there never was a sandbox 99"):
        harness.send(InvocationArrived("x", "default", "f"), SandboxStarted(99), RunFinished("0", 1, 1))
    assert harness.send() == [Complete("0"), Dispatch("x", 1, ("gpu-1",), Start.WARM, "oldest"), Run("x", 1)]


def test_the_clock_does_not_go_back():
    harness = one_device()
    harness.send(at=5)
    with pytest.raises(EventError, match="the clock went back from 5 to 4"):
        harness.send(at=4)


def test_events_of_a_stopped_sandbox_are_late_not_wrong():
    harness = one_device()
    harness.call("f")
    harness.send(SandboxLost(1, "killed"))
    assert harness.send(SandboxStarted(1), MemoryLoaded(1), RunFinished("0", 1, 1), SandboxLost(1, "again")) == []


class Overreaching(Queueing):
    """Sends every call to the first device, even if it is full."""

    def enqueued(self, flow, invocation, view):
        self.flow = flow

    def choose(self, view):
        return Choice(self.flow, view.devices[0], None, "because")


def test_an_impossible_choice_names_the_policy():
    harness = Harness(
        "mine", devices=[device(), device("gpu-2")], functions=[function()], queueing={"mine": Overreaching}
    )
    with pytest.raises(PolicyError, match=r"Overreaching chose f \(because\), but no sandbox can start on gpu-1 now"):
        harness.call("f", "f")


def test_every_state_but_the_last_can_end_and_the_last_cannot_change():
    for state in SandboxState:
        assert ((state, "end") in SANDBOX) == (state is not SandboxState.GONE)
    for state in InvocationState:
        assert ((state, "end") in INVOCATION) == (state is not InvocationState.ENDED)
    assert all(state is not SandboxState.GONE for state, _ in SANDBOX)


def test_a_function_with_a_new_domain_is_served_in_the_same_step():
    harness = Harness(
        "fcfs", devices=[device(), device("cpu", kind="cpu", memory_bytes=None)], functions=[function("a")]
    )
    host = function("host", share=0)
    commands = harness.send(FunctionDeployed("default", host), InvocationArrived("x", "default", "host"))
    assert [command.invocation for command in of_type(Dispatch, commands)] == ["x"]
