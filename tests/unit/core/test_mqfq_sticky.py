"""MQFQ-Sticky, with one test for each rule of its specification."""

import pytest

from aliquot.core.commands import LoadMemory, StopSandbox, UnloadMemory
from aliquot.core.events import FunctionDeployed, InvocationCancelled, UtilisationMeasured, Woke
from aliquot.core.units import GIB
from aliquot.policies.queueing.mqfq_sticky import FlowState, MqfqParams, MqfqSticky
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type


def mqfq(*functions, devices=None, tenant_weights=None, **params):
    return Harness(
        "mqfq_sticky",
        devices=devices or [device(concurrency=1)],
        functions=functions or [function("a"), function("b")],
        params={"mqfq_sticky": {name: str(value) for name, value in params.items()}},
        tenant_weights=tenant_weights,
    )


def tags(harness, name):
    return harness.policy().tags[harness.flow(name).index]


def test_enqueue_gives_start_max_of_gvt_and_f_and_finish_start_plus_tau_over_weight():
    harness = mqfq(function("a", run_s=2, weight=4), function("b", run_s=3))
    harness.call("b")  # takes the only slot, so that the others stay queued
    harness.call("a", "a", "b")
    assert tags(harness, "a").start == 0
    assert tags(harness, "a").finish == 1  # two steps of 2 / 4
    assert tags(harness, "b").start == 3  # F after the one that runs
    assert tags(harness, "b").finish == 6


def test_tau_is_the_ewma_of_device_run_time():
    harness = mqfq(function("a", run_s=2))
    harness.run_all(harness.call("a"), run_s=4)
    finish = tags(harness, "a").finish
    harness.call("a")
    assert tags(harness, "a").finish == pytest.approx(finish + 0.9 * 2 + 0.1 * 4)


def test_tau_unknown_is_a_tenth_of_t():
    harness = mqfq(function("a", run_s=None), T=7)
    harness.call("a")
    assert tags(harness, "a").finish == pytest.approx(0.7)


def test_withdrawing_a_call_removes_its_step():
    harness = mqfq(function("a", run_s=2), function("b"))
    harness.call("b")
    harness.call("a", "a", "a")
    harness.send(InvocationCancelled("1"), InvocationCancelled("2"))
    assert (tags(harness, "a").start, tags(harness, "a").finish) == (0, 2)


def test_a_flow_that_was_empty_takes_s_from_its_new_head():
    harness = mqfq()
    harness.call("a")
    harness.call("a")
    assert tags(harness, "a").start == 1


def test_a_new_flow_starts_at_gvt_so_idle_time_earns_no_credit():
    harness = mqfq(function("a", run_s=2), T=100)
    harness.run_all(harness.call("a", "a", "a"))
    gvt = harness.policy().gvt
    assert gvt == 4  # one runs, one waits
    harness.send(FunctionDeployed("default", function("late")))
    harness.call("late")
    assert tags(harness, "late").start == gvt


def test_gvt_is_the_smallest_s_over_non_empty_flows():
    harness = mqfq(function("a", run_s=2), function("b", run_s=3))
    harness.call("a")  # runs
    harness.call("b", "a", "b")
    assert harness.policy().gvt == 0  # b's head
    assert tags(harness, "a").start == 2


def test_gvt_is_kept_when_all_are_empty():
    harness = mqfq(function("a", run_s=2))
    commands = harness.call("a", "a")
    while commands:
        commands = harness.run_all(commands)
    assert harness.scheduler.registry.domains["accelerator"].queued == 0
    assert harness.policy().gvt == 2


def test_the_candidate_with_fewest_in_flight_is_chosen():
    harness = mqfq(devices=[device(concurrency=2)])
    assert [name for name, _, _ in dispatched(harness.call("a", "a", "a", "b"))] == ["0", "3"]


def test_ties_go_to_the_longest_queue():
    harness = mqfq()
    assert [name for name, _, _ in dispatched(harness.call("a", "b", "b"))] == ["1"]


def test_further_ties_go_to_the_flow_deployed_first():
    harness = mqfq()
    assert [name for name, _, _ in dispatched(harness.call("b", "a"))] == ["1"]


def test_pop_makes_s_the_next_heads_tag_or_f_when_empty():
    harness = mqfq(function("a", run_s=2))
    harness.call("a", "a")
    assert tags(harness, "a").start == 2
    harness.run_all(harness.log[-3:])
    assert tags(harness, "a").start == tags(harness, "a").finish == 4


@pytest.mark.parametrize(("run_s", "state"), [(6, FlowState.ACTIVE), (6.001, FlowState.THROTTLED)])
def test_a_flow_more_than_t_ahead_after_a_pop_is_throttled(run_s, state):
    harness = mqfq(function("a"), function("b", run_s=run_s), T=5)
    started = harness.call("a")  # takes the slot
    harness.call("b", "a", "b")
    assert dispatched(harness.run_all(started)) == [("1", "gpu-1", "cold")]  # b: the longer queue
    assert tags(harness, "b").state is state


def test_only_active_flows_are_candidates():
    harness = mqfq(function("a", run_s=1), function("b", run_s=10), T=5)
    harness.call("b")  # runs; F of b is 10
    harness.call("a", "b", "b", "b")
    assert tags(harness, "b").state is FlowState.THROTTLED  # its S is 10, GVT is 0
    commands = harness.run_all(harness.log[:2])
    assert dispatched(commands) == [("1", "gpu-1", "cold")]  # a, though b's queue is longer


def test_a_throttled_flow_is_active_again_when_gvt_has_caught_up():
    harness = mqfq(function("a", run_s=6), function("b", run_s=10), T=5)
    harness.call("b")
    harness.call("a", "a", "b")
    assert tags(harness, "b").state is FlowState.THROTTLED
    harness.run_all(harness.log[:2])  # b's first is done: a's first goes, GVT is 6
    assert harness.policy().gvt == 6
    assert tags(harness, "b").state is FlowState.ACTIVE


def test_leaving_active_swaps_the_memory_of_its_idle_sandboxes_out():
    harness = mqfq(function("a"), function("b", run_s=6), devices=[device(concurrency=2)], T=5)
    harness.ready(harness.call("b", at=0))
    harness.ready(harness.call("b", at=0.5))
    harness.finish("0", run_s=6)
    harness.finish("1", run_s=6)  # two idle sandboxes of b
    harness.ready(harness.call("a", "a", "a"))  # both slots, and one that waits
    harness.call("b")
    assert tags(harness, "b").state is FlowState.ACTIVE
    commands = harness.finish("2")  # b goes into one of them, which puts it 10 ahead of a
    assert dispatched(commands) == [("5", "gpu-1", "warm")]
    assert tags(harness, "b").state is FlowState.THROTTLED
    assert of_type(UnloadMemory, commands) == [UnloadMemory(1, "its flow runs ahead of others")]


def test_an_idle_flow_turns_inactive_after_alpha_mean_inter_arrival_times_since_last_serviced():
    harness = mqfq(function("a"), alpha=2)
    for second in (0, 3, 6):
        harness.now = second
        harness.run_all(harness.call("a"))
    harness.send(Woke(), at=11.5)
    assert tags(harness, "a").state is not FlowState.INACTIVE
    assert of_type(UnloadMemory, harness.send(Woke(), at=12))  # 6 + 2 x 3
    assert tags(harness, "a").state is FlowState.INACTIVE


def test_a_flow_with_something_in_flight_does_not_turn_inactive():
    harness = mqfq(function("a"))
    harness.run_all(harness.call("a", at=0))
    harness.run_all(harness.call("a", at=1))
    harness.call("a", at=2)
    harness.send(Woke(), at=100)
    assert tags(harness, "a").state is not FlowState.INACTIVE


def test_becoming_active_loads_the_memory_of_idle_sandboxes_again():
    harness = mqfq(function("a"), function("b"), devices=[device(concurrency=1)])
    harness.run_all(harness.call("a", at=0))
    harness.run_all(harness.call("a", at=1))
    assert of_type(UnloadMemory, harness.send(Woke(), at=10))
    harness.ready(harness.call("b", at=11))  # the only slot is taken
    assert of_type(LoadMemory, harness.call("a", at=11.5)) == [
        LoadMemory(1, "its flow has or expects calls")
    ]  # it waits, but its memory is loaded already
    assert dispatched(harness.finish("2")) == [("3", "gpu-1", "swap_in")]


def test_a_swap_in_evicts_nothing():
    harness = mqfq(function("a"), function("b"), devices=[device(concurrency=1, memory_bytes=GIB)])
    harness.run_all(harness.call("a", at=0))
    harness.run_all(harness.call("a", at=1))
    harness.send(Woke(), at=10)
    harness.ready(harness.call("b", at=11))
    assert not of_type(LoadMemory, harness.call("a", at=11.5))


def test_an_idle_sandbox_is_used_on_its_own_device_and_not_matched_to_the_tokens_device():
    harness = mqfq(function("a"), devices=[device("gpu-1", concurrency=2), device("gpu-2", concurrency=2)])
    harness.run_all(harness.call("a"))
    assert dispatched(harness.call("a")) == [("1", "gpu-1", "warm")]  # gpu-2 has more free slots


def test_an_idle_sandbox_is_used_on_a_full_device_while_a_token_is_free_anywhere():
    harness = mqfq(function("a"), function("b"), devices=[device("gpu-1"), device("gpu-2")])
    harness.run_all(harness.call("a"))  # on gpu-1
    harness.ready(harness.call("b"))  # the first of the two empty devices
    assert dispatched(harness.log)[-1] == ("1", "gpu-1", "cold")
    assert dispatched(harness.call("a")) == [("2", "gpu-1", "warm")]  # gpu-1 is full, gpu-2 has the token
    assert not dispatched(harness.call("a", "b"))  # tokens are counted over all devices


def test_a_declared_share_is_guaranteed_so_it_needs_a_slot_of_its_own_device():
    harness = mqfq(function("a", share=0.6), function("b"), devices=[device("gpu-1"), device("gpu-2")])
    harness.run_all(harness.call("a"))
    harness.ready(harness.call("b"))
    assert dispatched(harness.call("a")) == [("2", "gpu-2", "cold")]


def test_a_cold_sandbox_goes_to_the_device_with_most_free_slots():
    harness = mqfq(devices=[device("gpu-1", concurrency=2), device("gpu-2", concurrency=3)])
    started = dispatched(harness.call("a", "b", "a", "b"))
    assert [where for _, where, _ in started] == ["gpu-2", "gpu-1", "gpu-2", "gpu-1"]


def test_no_token_above_the_utilisation_cap():
    harness = mqfq(devices=[device("gpu-1", concurrency=2), device("gpu-2", concurrency=2)])
    assert [where for _, where, _ in dispatched(harness.call("a"))] == ["gpu-1"]
    harness.send(UtilisationMeasured("gpu-1", 0.96))
    assert [where for _, where, _ in dispatched(harness.call("b", "a", "b"))] == ["gpu-2", "gpu-2"]
    assert dispatched(harness.send(UtilisationMeasured("gpu-1", 0.95))) == [("3", "gpu-1", "cold")]


def test_utilisation_measured_before_a_device_became_idle_does_not_block_it():
    harness = mqfq()
    started = harness.call("a")
    harness.send(UtilisationMeasured("gpu-1", 0.99))
    harness.run_all(started)
    assert dispatched(harness.call("b")) == [("1", "gpu-1", "cold")]


def test_the_pool_is_bounded_and_lru_among_the_idle():
    names = ("a", "b", "c")
    harness = mqfq(*(function(name) for name in names), pool_slots=2)
    for name in ("a", "b", "a"):
        harness.run_all(harness.call(name))
    assert of_type(StopSandbox, harness.call("c")) == [StopSandbox(2, "its pool slot is needed", room_for="3")]


def test_defaults():
    params = MqfqParams()
    assert (params.overrun_s, params.alpha, params.cap, params.pool_slots) == (5, 1.5, 0.95, 16)
    companions = MqfqSticky.companions(params)
    assert (companions.keepalive, companions.eviction) == ("anticipatory", "lru")
    assert mqfq().scheduler.pool.slots == 16
    assert device().concurrency == 1
    assert type(device())("x").concurrency == 2


def test_weights_divide_tau():
    harness = mqfq(function("a", run_s=2), tenant_weights={"default": 4})
    harness.call("a")
    assert tags(harness, "a").finish == 0.5
