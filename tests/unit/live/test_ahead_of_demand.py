"""Calls that are known to come: told by sequences, sessions and alarms, and left alone if nothing is started ahead."""

import pytest
from msgspec.structs import replace

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.commands import Move
from aliquot.core.events import CallExpected, DeviceAdded, FunctionDeployed, MoveAsked
from aliquot.live.invocations.ahead_of_demand import AheadOfDemand, FirstCalls
from aliquot.live.invocations.node_commands import NodeCommands
from aliquot.testing.builders import device, function
from aliquot.testing.node import ScriptedNode


class KnownFlows:
    """Flows in which each function of a tenant is its own flow, unless it is unknown."""

    def has(self, _tenant, function):
        return function != "unknown"

    def flow(self, _tenant, function):
        return function


class Told:
    """The events that a platform posts at a time that the test sets."""

    def __init__(self, provisioning="forecast"):
        self.now = 100.0
        self.events = []
        self.scheduler = assemble(PolicySettings("fcfs", provisioning=provisioning))
        functions = [FunctionDeployed("ann", function(name)) for name in ("first", "second")]
        self.scheduler.step(0, [DeviceAdded(replace(device("host-1", kind="host"), movable=True)), *functions])
        self.ahead = AheadOfDemand(self.scheduler, KnownFlows(), self.events.append, lambda: self.now)


def test_the_next_component_of_a_sequence_is_expected_when_the_current_one_has_started_and_run():
    told = Told()
    flow = told.scheduler.registry.flow("ann", "first")
    flow.run_estimate_s, flow.start_estimate_s = 3.0, 2.0
    told.ahead.expect_after("ann", "first", "second", "sequence")
    assert told.events == [CallExpected("ann", "second", 105.0, "sequence")]


def test_the_first_call_of_a_session_is_expected_as_the_last_ones_began():
    told = Told()
    told.ahead.session_began("ann", "s1")
    assert not told.events
    told.now = 104
    told.ahead.session_called("ann", "s1", "first")
    told.ahead.session_called("ann", "s1", "second")  # not the first one
    told.ahead.session_began("ann", "s2")
    assert told.events == [CallExpected("ann", "first", 108.0, "session that begins")]
    told.ahead.session_began("bob", "s3")
    assert len(told.events) == 1


def test_a_tenant_whose_sessions_begin_in_another_way_is_learned_anew():
    known = FirstCalls()
    known.began("ann", "s1", 0)
    known.called("ann", "s1", "first", 4)
    known.began("ann", "s2", 10)
    known.called("ann", "s2", "first", 20)
    assert known.began("ann", "s3", 30) == ("first", pytest.approx(0.7 * 4 + 0.3 * 10))
    known.called("ann", "s3", "second", 31)
    assert known.began("ann", "s4", 40) == ("second", 1)


def test_nothing_is_told_if_nothing_is_started_ahead_or_the_function_is_unknown():
    off, told = Told("none"), Told()
    off.ahead.expect("ann", "first", 5, "alarm a")
    off.ahead.session_began("ann", "s1")
    told.ahead.expect("ann", "unknown", 5, "alarm a")
    assert not off.events
    assert not told.events


def test_the_operator_learns_why_a_sandbox_cannot_move_and_what_is_wanted():
    told = Told()
    assert told.ahead.move(7, "host-2") == "there is no sandbox 7"
    assert not told.events
    (row,) = told.ahead.capacity()
    assert (row.kind, row.there, row.wanted, row.reason) == ("host", 1, 0, "nothing is foreseen")


def test_a_move_is_performed_on_the_node_and_its_end_is_reported_with_its_number():
    node, events = ScriptedNode([]), []
    perform = NodeCommands(node, events.append).performers()[Move]
    for number in (1, 2):
        perform(Move(number, 5, ("host-2",), "asked for"))
        place, then = node.moves[5]
        assert place == ("host-2",)
        then(None if number == 1 else "no control group")
    assert [type(event).__name__ for event in events] == ["SandboxMoved", "MoveFailed"]
    assert [event.move for event in events] == [1, 2]
    assert MoveAsked not in map(type, events)
