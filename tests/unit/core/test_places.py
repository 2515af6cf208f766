"""Functions that take several whole devices, all at once or none."""

import pytest

from aliquot.core.commands import Fail, SetSlice, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.errors import EventError
from aliquot.core.events import DeviceAdded, DeviceLost, FunctionDeployed, SandboxLost
from aliquot.core.fit import could_hold, count_at_once, misfit
from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.sharing import SHARING
from aliquot.testing import Harness, device, function
from aliquot.testing.harness import dispatched, of_type


def gpus(count, *, memory_bytes=16 * GIB):
    return [device(f"gpu-{number}", concurrency=4, memory_bytes=memory_bytes) for number in range(1, count + 1)]


def books(harness, name):
    found = harness.scheduler.registry.device(name)
    return found.running, found.shares_used, found.resident_bytes


def test_a_sandbox_takes_a_slot_and_memory_on_each_of_its_devices():
    harness = Harness(devices=gpus(3), functions=[function("two", share=2, memory_bytes=GIB)])
    commands = harness.call("two")
    assert of_type(StartSandbox, commands)[0].place == ("gpu-1", "gpu-2")
    assert dispatched(commands) == [("0", "gpu-1,gpu-2", "cold")]
    assert [books(harness, f"gpu-{n}") for n in (1, 2, 3)] == [(1, 1, GIB), (1, 1, GIB), (0, 0, 0)]
    harness.run_all(commands)
    assert [books(harness, f"gpu-{n}") for n in (1, 2)] == [(0, 0, GIB), (0, 0, GIB)]
    assert dispatched(harness.call("two")) == [("1", "gpu-1,gpu-2", "warm")]


@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_a_call_waits_until_all_its_devices_are_idle_and_reserves_none_before(policy):
    harness = Harness(policy, devices=gpus(2), functions=[function("two", share=2), function("part", share=0.5)])
    harness.ready(harness.call("part"))
    assert dispatched(harness.call("two")) == []
    assert sorted(books(harness, f"gpu-{n}")[:2] for n in (1, 2)) == [(0, 0), (1, 0.5)]
    assert sorted(dispatched(harness.finish("0"))[0][1].split(",")) == ["gpu-1", "gpu-2"]


def test_no_other_sandbox_runs_on_its_devices():
    harness = Harness(devices=gpus(2), functions=[function("two", share=2), function("part", share=0.01)])
    harness.ready(harness.call("two"))
    assert dispatched(harness.call("part")) == []
    assert dispatched(harness.finish("0")) == [("1", "gpu-1", "cold")]


def test_its_devices_are_of_one_kind():
    devices = [device("a-1", kind="a"), device("b-1", kind="b"), device("b-2", kind="b")]
    harness = Harness(devices=devices, functions=[function("two", share=2)])
    assert dispatched(harness.call("two")) == [("0", "b-1,b-2", "cold")]


def test_idle_sandboxes_are_evicted_on_each_device_and_so_is_it():
    harness = Harness(
        devices=gpus(2, memory_bytes=4 * GIB),
        functions=[function("two", share=2, memory_bytes=3 * GIB), function("part", share=1, memory_bytes=2 * GIB)],
    )
    harness.run_all(harness.call("part", "part"))
    started = harness.call("two")
    assert [command.sandbox for command in of_type(UnloadMemory, started)] == [1, 2]
    harness.run_all(started)
    swapped_in = harness.call("part")
    assert [command.sandbox for command in of_type(UnloadMemory, swapped_in)] == [3]  # on one device, so on both
    assert sorted(books(harness, f"gpu-{n}")[2] for n in (1, 2)) == [0, 2 * GIB]
    harness.run_all(swapped_in)
    assert dispatched(harness.call("two")) == [("4", "gpu-1,gpu-2", "swap_in")]


def test_it_has_a_pool_slot_on_each_device():
    harness = Harness(
        "mqfq_sticky",
        devices=gpus(2),
        functions=[function("two", share=2), function("part", share=1)],
        params={"mqfq_sticky": {"pool_slots": "1"}},
    )
    harness.run_all(harness.call("two"))
    assert [command.sandbox for command in of_type(StopSandbox, harness.call("part"))] == [1]


def test_a_session_keeps_it_on_each_device():
    harness = Harness(devices=gpus(2), functions=[function("two", share=2)])
    harness.run_all(harness.call("two", session="s"))
    assert [list(found.kept) for found in harness.scheduler.registry.devices.values()] == [[1], [1]]


def test_it_is_lost_with_any_of_its_devices():
    harness = Harness(devices=gpus(3), functions=[function("two", share=2)])
    harness.ready(harness.call("two"))
    harness.send(DeviceLost("gpu-2"))
    assert books(harness, "gpu-1") == (0, 0, 0)
    assert dispatched(harness.call("two")) == [("1", "gpu-1,gpu-3", "cold")]
    harness.send(SandboxLost(2, "bad luck"))
    assert [books(harness, f"gpu-{n}") for n in (1, 3)] == [(0, 0, 0)] * 2


def test_when_too_few_devices_are_left_waiting_calls_fail_with_the_reason():
    harness = Harness(devices=gpus(2), functions=[function("two", share=2)])
    harness.call("two", "two")
    running, waiting = of_type(Fail, harness.send(DeviceLost("gpu-2")))
    assert running.reason == "device gpu-2 was lost"
    assert "takes so many whole devices of one kind; there are 1 of kind gpu" in waiting.reason
    harness.send(DeviceAdded(device("gpu-9")))
    assert dispatched(harness.call("two")) == [("2", "gpu-1,gpu-9", "cold")]


@pytest.mark.parametrize("sharing", sorted(SHARING))
def test_its_slice_is_all_of_each_device_however_they_are_shared(sharing):
    harness = Harness(devices=gpus(2), functions=[function("two", share=2)], sharing=sharing)
    commands = harness.call("two")
    commands += harness.ready(commands)
    assert [(command.share, command.ceiling) for command in of_type(SetSlice, commands)] == [(1, 1)]


def test_it_is_charged_for_all_of_its_devices():
    calls = [function(name, share=share, cold_s=0, load_s=0) for name, share in (("one", 1), ("two", 2))]
    harness = Harness("fair_resident", devices=gpus(3), functions=calls)
    harness.call("one", "two")
    charged = [harness.policy().virtual_time(harness.flow(name)) for name in ("one", "two")]
    assert charged == pytest.approx([1, 2])


def test_more_than_one_device_and_not_a_whole_number_of_them_is_refused():
    harness = Harness(devices=gpus(2))
    for share in (1.5, 2.01, float("inf"), float("nan")):
        with pytest.raises(EventError, match="neither from 0 to 1 nor a whole number of devices"):
            harness.send(FunctionDeployed("t", function("f", share=share)))


def test_a_misfit_names_the_largest_request_that_would_fit():
    two = [DeviceSpec(f"a-{number}", "a", memory) for number, memory in ((1, 100), (2, 60))]
    assert misfit(function("f", share=2, memory_bytes=60), two) is None
    text = misfit(function("f", share=3, memory_bytes=10), two)
    assert "a share of 3 takes so many whole devices of one kind; there are 2 of kind a" in text
    assert text.endswith("the largest that would fit is a share of 2 with 60 bytes on each device")
    text = misfit(function("f", share=2, memory_bytes=80), two)
    assert "a-2: needs 80 bytes of 60" in text
    assert text.endswith("the largest that would fit is a share of 2 with 60 bytes on each device")
    text = misfit(function("f", share=2, memory_bytes=10), two[:1])
    assert text.endswith("the largest that would fit is a share of 1 with 100 bytes")


def test_it_could_be_on_a_device_that_has_enough_others_of_its_kind():
    specs = [device("a-1", kind="a"), device("b-1", kind="b"), device("b-2", kind="b")]
    assert [could_hold(function("f", share=2), spec, specs) for spec in specs] == [False, True, True]


def test_functions_run_at_once_as_long_as_devices_have_shares_memory_and_slots():
    def count(functions, **device):
        return count_at_once([function("f", **one) for one in functions], [DeviceSpec("g0", concurrency=8, **device)])

    assert count([{"share": 0.5}] * 3) == 2
    assert count([{"share": 0.1}] * 10) == 8  # the device runs so many at once
    assert count([{"share": 0.1, "memory_bytes": 4}] * 3, memory_bytes=10) == 2
    assert count([{"share": 0.3}, {"share": 0.8}]) == 1
    two = [DeviceSpec("g0"), DeviceSpec("g1"), DeviceSpec("cpu", kind="cpu")]
    assert count_at_once([function("f", share=2), function("g", share=0.5)], two) == 1
    assert count_at_once([function("f", share=0.5), function("g", share=0), function("h", share=1)], two) == 3
    assert count_at_once([function("f", share=2)], [DeviceSpec("g0", node="a"), DeviceSpec("g1", node="b")]) == 0


def test_a_device_whose_name_would_read_as_two_is_refused():
    with pytest.raises(EventError, match="its name contains ','"):
        Harness(devices=[device("gpu-1,gpu-2")])
