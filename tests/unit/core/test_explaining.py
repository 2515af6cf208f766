"""The cause of a wait is what the scheduler itself would say at that moment."""

import pytest
from msgspec.structs import replace

from aliquot.core.events import NodeLost
from aliquot.core.explaining import Cause, Holder, explain_wait
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.queueing.fcfs import Fcfs
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness


def cause_of(harness, invocation):
    return explain_wait(harness.scheduler.invocations[invocation])


def test_a_call_beyond_the_instances_of_its_function_waits_for_its_own_limit():
    harness = Harness(devices=[device(concurrency=4)], functions=[replace(function(share=0.2), instances=1)])
    harness.call("f", "f")
    wait = cause_of(harness, "1")
    assert (wait.cause, wait.detail) == (Cause.OWN_LIMIT, "1 call of its function in flight of at most 1")
    assert wait.holders == (Holder("default", "f", 1),)


def test_a_call_behind_others_of_its_function_waits_in_its_own_queue():
    harness = Harness(devices=[device()], functions=[function()])
    harness.call("f", "f", "f")
    assert cause_of(harness, "2").cause is Cause.OWN_QUEUE
    assert cause_of(harness, "2").detail == "1 call of its function before it"


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        (function("g"), "gpu-1: 2 of 2 slots are taken"),
        (function("g", share=0.5), "gpu-1: a share of 0.8 is taken, and it needs 0.5"),
        (function("g", share=0.1, memory_bytes=4 * GIB), "gpu-1: 2048 MiB of memory can be freed, and it needs 4096"),
    ],
)
def test_a_full_device_is_told_with_what_it_lacks(spec, detail):
    busy = function("busy", share=0.4, memory_bytes=7 * GIB)
    harness = Harness(devices=[device(concurrency=2 if "slots" in detail else 4)], functions=[busy, spec])
    harness.ready(harness.call("busy", "busy"))
    harness.call("g")
    wait = cause_of(harness, "2")
    assert (wait.cause, wait.detail) == (Cause.FULL, detail)
    assert wait.holders == (Holder("default", "busy", 2),)


def test_many_full_devices_are_counted():
    devices = [device(f"gpu-{number}") for number in range(6)]
    harness = Harness(devices=devices, functions=[function()])
    harness.call(*["f"] * 7)
    assert cause_of(harness, "6").detail.endswith("; and 2 devices more")


def test_a_function_that_fits_nowhere_waits_for_a_device():
    nodes = [replace(device(f"{node}/gpu"), node=node) for node in ("a", "b")]
    harness = Harness(devices=nodes, functions=[function()])
    harness.call("f", "f", "f")
    harness.send(NodeLost("a"), NodeLost("b"))
    assert cause_of(harness, "2").cause is Cause.NO_DEVICE


def test_a_call_whose_turn_has_not_come_waits_although_there_is_room():
    """Under `fcfs` the second call would fit, and the first one in the queue does not."""
    functions = [function("busy", share=0.6), function("big", share=0.5), function("small", share=0.1)]
    harness = Harness("fcfs", devices=[device(concurrency=4)], functions=functions)
    harness.call("busy", "big", "small")
    assert cause_of(harness, "1").cause is Cause.FULL
    wait = cause_of(harness, "2")
    assert (wait.cause, wait.detail) == (Cause.TURN, "1 call of other functions in the queue")


class OneByOne(Fcfs):
    """Lets the calls of a function run one by one, as a policy does that waits for a warm sandbox."""

    def choose(self, view):
        return None if any(device.running for device in view.devices) else super().choose(view)


def test_a_call_that_waits_for_a_sandbox_of_its_function_will_be_warm_soon():
    queueing = QUEUEING | {"one_by_one": OneByOne}
    harness = Harness("one_by_one", devices=[device(concurrency=4)], functions=[function()], queueing=queueing)
    harness.call("f", "f")
    assert cause_of(harness, "1").cause is Cause.WARM_SOON


def test_explaining_changes_nothing():
    harness = Harness(devices=[device()], functions=[function()])
    harness.call("f", "f", "f")
    before = [repr(command) for command in harness.log]
    for name in ("1", "2"):
        cause_of(harness, name)
    harness.send()
    assert [repr(command) for command in harness.log] == before
