"""The policy `learned`: costs that were seen decide between kinds of devices that are both in time."""

import pytest

from aliquot.core.commands import Promise, Reject
from aliquot.core.events import FunctionRemoved, InvocationArrived
from aliquot.core.model import CPU, FunctionSpec, Times
from aliquot.testing.builders import device
from aliquot.testing.harness import Harness, of_type

# A call costs 100 on the accelerator, and 17 on the slot of the processors.
FUNCTION = FunctionSpec("f", share=1, times=Times(0.1, 0, 0), times_by_kind={CPU: Times(1, 0, 0)})
DEADLINE_S = 4


def make(**params):
    devices = [
        device("gpu-1", concurrency=1, memory_bytes=None),
        device(CPU, kind=CPU, concurrency=1, memory_bytes=None),
    ]
    given = {"learned": {"margin_s": "0", "exploration": "0", "rate": "1", "penalty": "20", **params}}
    return Harness("fcfs", devices=devices, functions=[FUNCTION], admission="learned", params=given)


def call(harness, name, wait_s=20.0):
    """Promise a call after a pause, and return the kind it is planned on."""
    commands = harness.send(InvocationArrived(name, "default", "f", DEADLINE_S), at=harness.now + wait_s)
    harness.ready(commands)
    (promise,) = of_type(Promise, commands)
    return promise.kinds[0]


def test_without_experience_the_cheapest_kind_is_chosen():
    harness = make()
    assert call(harness, "a") == CPU
    harness.finish("a", at=harness.now + 1)
    assert call(harness, "b") == CPU


def test_a_kind_on_which_a_promise_was_broken_costs_more_than_its_bound():
    harness = make()
    assert call(harness, "a") == CPU
    harness.finish("a", at=harness.now + 1)
    assert call(harness, "b") == CPU
    harness.finish("b", at=harness.now + DEADLINE_S + 1)
    assert call(harness, "c") == "gpu"
    harness.finish("c", at=harness.now + 0.1)
    assert call(harness, "d") == "gpu"


def test_a_refusal_is_charged_to_the_choices_before_it():
    harness = make(penalty="100")
    assert call(harness, "a") == CPU
    for number in range(200):
        commands = harness.send(InvocationArrived(f"x{number}", "default", "f", 0.35))
        if of_type(Reject, commands):
            break
    else:
        pytest.fail("the lanes have no room for 200 calls, and none was refused")
    policy = harness.scheduler.admitter.policy
    assert max(policy._costs.values()) > 17


def test_what_was_learned_is_forgotten_with_the_function():
    harness = make()
    call(harness, "a")
    harness.finish("a", at=harness.now + 1)
    harness.send(FunctionRemoved("default", "f"))
    assert not harness.scheduler.admitter.policy._costs
