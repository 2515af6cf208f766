"""Calls with a deadline or a cost limit in the service: arrival, record, and calls that are not waited for."""

import msgspec
from rig import on_a_rig

from aliquot.live.invocations.objective import CallLimits, CallObjective
from aliquot.live.store.records import Action, Exec

ECHO = Action("guest", "echo", "0.0.1", Exec("python:3.11", "def main(args): return args"), revision="1")

run = on_a_rig(deployed=(ECHO,))


def with_limits(call, deadline_s=None, cost=None):
    call.objective = CallObjective(CallLimits(deadline_s, cost))
    return call


def notes_of(call):
    annotations = msgspec.json.decode(call.activation.summary)["annotations"]
    return {pair["key"]: pair["value"] for pair in annotations}


@run
async def test_the_record_says_whether_the_limits_were_met_and_what_it_cost(rig):
    met, late, dear, plain = (
        with_limits(rig.call(ECHO), 60, 1e6),
        with_limits(rig.call(ECHO), 1e-6),
        with_limits(rig.call(ECHO), None, 0),
        rig.call(ECHO),
    )
    for call in (met, late, dear, plain):
        rig.service.submit(call)
    await rig.finish_all()
    found = notes_of(met)
    assert found["objective"] == {"deadline": 60_000.0, "costLimit": 1e6, "promised": False, "met": True}
    assert found["cost"] > 0
    assert notes_of(late)["objective"] == {"deadline": 0.001, "promised": False, "met": False}
    assert notes_of(dear)["objective"] == {"costLimit": 0, "promised": False, "met": False}
    assert not {"objective", "cost"} & notes_of(plain).keys()
    assert rig.service.status()["promises"] == {"unpromised": 3}


@run
async def test_a_call_that_is_not_waited_for_is_durable_once_it_is_admitted(rig):
    call = with_limits(rig.call(ECHO), 60)
    await rig.service.accept(call)
    assert (await rig.queue()) == [("echo", False)]
    assert call.done is not None
    await rig.finish_all()
    await rig.until_ended(call)
    assert (await rig.queue()) == []
    assert notes_of(call)["objective"]["met"]


@run
async def test_a_warm_call_that_is_not_waited_for_may_begin_before_it_is_on_disk(rig):
    rig.service.submit(rig.call(ECHO))
    await rig.finish_all()
    call = with_limits(rig.call(ECHO), 60)
    await rig.service.accept(call)
    assert (await rig.queue()) == [("echo", True)]  # it runs already
    rig.node.finish(next(iter(rig.node.running)))
    await rig.until_ended(call)
    assert (await rig.queue()) == []
