"""The offline optimum of the benchmark `slo` equals the best of all schedules."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_bench.slo.optimum import MAX_CALLS, OfflineCall, RunTime, most_in_time

LENGTHS = {"a": 2, "b": 3}


def gpu(function: str, size: int) -> float:
    return LENGTHS[function] + size - 1


def cpu(function: str, size: int) -> float:
    return 2 * LENGTHS[function] * size


Plan = list[list[OfflineCall]]  # the batches of a lane


def in_time(run_s: RunTime, batches: Plan) -> bool:
    now = 0.0
    for batch in batches:
        now = max(now, *(call.arrives_s for call in batch)) + run_s(batch[0].function, len(batch))
        if any(now > call.due_s for call in batch):
            return False
    return True


def extended(batches: Plan, call: OfflineCall, max_batch: int) -> list[Plan]:
    """Return the plans in which the call begins a batch, or joins the last one."""
    ways = [[*batches, [call]]]
    if batches and len(batches[-1]) < max_batch and batches[-1][0].function == call.function:
        ways.append([*batches[:-1], [*batches[-1], call]])
    return ways


def most_by_trying_all(calls: list[OfflineCall], lanes: list[RunTime], max_batch: int) -> int:
    """Try all orders of all calls, each of which joins the last batch of a lane, begins one, or is left out."""

    def place(order: tuple[OfflineCall, ...], plans: list[Plan]) -> int:
        if not order:
            return 0
        most = place(order[1:], plans)
        for lane, batches in enumerate(plans):
            for way in extended(batches, order[0], max_batch):
                if in_time(lanes[lane], way):
                    most = max(most, 1 + place(order[1:], [*plans[:lane], way, *plans[lane + 1 :]]))
        return most

    return max(place(order, [[] for _ in lanes]) for order in permutations(calls))


calls = st.builds(
    lambda arrives, slack, function: OfflineCall(arrives, arrives + slack, function),
    st.integers(0, 6),
    st.integers(1, 9),
    st.sampled_from("ab"),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(calls, max_size=4), st.integers(1, 3))
def test_the_optimum_equals_the_best_of_all_schedules(listed: list[OfflineCall], max_batch: int) -> None:
    assert most_in_time(listed, [gpu, cpu], max_batch) == most_by_trying_all(listed, [gpu, cpu], max_batch)
    assert most_in_time(listed, [gpu], max_batch) == most_by_trying_all(listed, [gpu], max_batch)


def test_a_batch_may_wait_for_its_last_member() -> None:
    late = [OfflineCall(0, 5, "a"), OfflineCall(2, 5, "a")]
    assert most_in_time(late, [gpu], 2) == 2
    assert most_in_time([*late, OfflineCall(2, 5, "b")], [gpu, cpu], 2) == 2


def test_too_many_calls_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_CALLS}"):
        most_in_time([OfflineCall(0, 1, "a")] * (MAX_CALLS + 1), [gpu], 1)
