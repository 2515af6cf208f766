"""Sharing and packing: which part of a device's compute a sandbox gets, and when the shell is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.commands import SetSlice
from aliquot.core.events import InvocationCancelled, RunFinished, SandboxLost, SandboxStarted
from aliquot.core.interfaces import Params
from aliquot.core.records import Slice
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING
from aliquot.sim.contention import ComputeClaim, divide_compute
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type

requests = st.lists(st.integers(1, 100), min_size=1, max_size=8).map(
    lambda parts: [part / max(sum(parts), 100) for part in parts]
)


def shared(sharing, *functions, count=8):
    return Harness(devices=[device(concurrency=count)], functions=functions, sharing=sharing)


def slices(commands):
    return [(command.sandbox, command.share, command.ceiling) for command in of_type(SetSlice, commands)]


def test_hard_sets_the_requested_slice_once_at_the_start():
    harness = shared("hard", function("f", share=0.25))
    assert slices(harness.call("f")) == [(1, 0.25, 0.25)]
    harness.send(SandboxStarted(1))
    harness.send(RunFinished("0", 1, 1))
    assert slices(harness.call("f")) == []


def test_elastic_lets_each_borrow_up_to_its_limit():
    harness = shared("elastic", function("a", share=0.25), function("b", share=0.25, share_limit=0.5))
    assert slices(harness.call("a", "b")) == [(1, 0.25, 1), (2, 0.25, 0.5)]


def test_a_function_without_a_declared_share_requests_one_slots_part():
    harness = shared("elastic", function("f"), count=4)
    assert slices(harness.call("f")) == [(1, 0.25, 1)]


def test_guarded_lends_only_what_no_running_sandbox_requested():
    harness = shared("elastic_guarded", function("small", share=0.1), function("large", share=0.9))
    assert slices(harness.call("small")) == [(1, 0.1, 0.1)]  # it does not run while it starts
    assert slices(harness.send(SandboxStarted(1))) == [(1, 0.1, 1)]
    assert slices(harness.call("large")) == [(2, 0.9, 0.9)]
    taken_back = harness.send(SandboxStarted(2))
    assert slices(taken_back) == [(1, 0.1, pytest.approx(0.1))]
    assert slices(harness.send(RunFinished("1", 2, 1))) == [(1, 0.1, 1)]


def test_guarded_shrinks_slices_before_others_grow():
    harness = shared("elastic_guarded", function("a", share=0.5), function("b", share=0.3))
    harness.call("a", "b")
    harness.send(SandboxStarted(1))
    changes = slices(harness.send(SandboxStarted(2)))
    assert changes == [(1, 0.5, pytest.approx(0.7)), (2, 0.3, pytest.approx(0.5))]


@pytest.mark.parametrize("end", [SandboxLost(2, "gone"), InvocationCancelled("1")])
def test_compute_of_lost_and_cancelled_sandboxes_is_lent_again(end):
    harness = shared("elastic_guarded", function("small", share=0.1), function("large", share=0.9))
    harness.call("small", "large")
    harness.send(SandboxStarted(1), SandboxStarted(2))
    assert slices(harness.send(end)) == [(1, 0.1, 1)]


def test_functions_that_asked_for_no_gpu_have_no_slice():
    harness = Harness(
        devices=[device("cpu", kind="cpu", memory_bytes=None)], functions=[function("f", share=0)], sharing="elastic"
    )
    assert slices(harness.call("f")) == []


@given(requests, st.sampled_from(sorted(SHARING)), st.floats(0, 1))
def test_no_ceiling_includes_what_another_requested(asked, sharing, limit):
    policy = SHARING[sharing](Params())
    given_ = policy.allot([Slice(number, request, max(limit, request)) for number, request in enumerate(asked)])
    for request, allotment in zip(asked, given_, strict=True):
        assert allotment.share == request <= allotment.ceiling <= 1 + 1e-9
    if sharing == "elastic_guarded":
        for place, allotment in enumerate(given_):
            others = sum(request for other, request in enumerate(asked) if other != place)
            assert allotment.ceiling <= max(allotment.share, 1 - others) + 1e-9


@given(requests, st.data())
def test_the_simulated_device_gives_each_its_share_and_divides_the_rest(asked, data):
    claims = [ComputeClaim(request, data.draw(st.floats(request, 1))) for request in asked]
    given_ = divide_compute(claims)
    assert sum(given_) <= 1 + 1e-9
    for claim, part in zip(claims, given_, strict=True):
        assert claim.share - 1e-9 <= part <= claim.ceiling + 1e-9
    if sum(claim.ceiling for claim in claims) >= 1:
        assert sum(given_) == pytest.approx(1)


WITHOUT_CHOICE = {"affinity", "exclusive", "round_robin"}  # these choose by device, or by owner
PACKED = (("first_fit", "gpu-1"), ("best_fit", "gpu-2"))


@pytest.mark.parametrize(("packing", "where"), PACKED)
@pytest.mark.parametrize("policy", sorted(set(QUEUEING) - WITHOUT_CHOICE))
def test_packing_chooses_the_device_of_a_slice_under_every_policy_with_a_choice(policy, packing, where):
    calls = [function(name, share=share) for name, share in (("large", 0.9), ("half", 0.5), ("small", 0.1))]
    devices = [device(name, concurrency=8) for name in ("gpu-1", "gpu-2")]
    harness = Harness(policy, devices=devices, functions=calls, packing=packing)
    harness.ready(harness.call("large"))
    harness.ready(harness.call("half"))
    harness.finish("0")
    assert [place for _, place, _ in dispatched(harness.call("small"))] == [where]
