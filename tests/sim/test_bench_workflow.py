"""The workflow benchmark: the interpreter's figures, a real run of moto, and goals that compare them."""

import sys
from pathlib import Path

import pytest

from aliquot_bench.base import BenchRequest
from aliquot_bench.workflow import WorkflowBench, engine, peers


def test_the_measured_machine_makes_as_many_transitions_as_it_has_states():
    execution = engine.Execution(engine.compile_machine(engine.pass_and_choice(engine.STATES + 1)))
    (finish,) = execution.step([engine.Started("one", engine.INPUT)], engine.NOW)
    assert finish.output["n"] == 1 + (engine.STATES + 2) // 2
    assert execution.events == 2 * (engine.STATES + 3) + 2  # entered and left, the last two states, start and end


def test_functions_are_called_as_tasks_in_their_order():
    assert engine.called_by_the_engine_s() > 0
    assert list(engine.compile_machine(engine.tasks(3)).states) == ["T0", "T1", "T2"]


def test_moto_is_measured_in_an_environment_of_its_own():
    pytest.importorskip("moto", reason="moto is a development dependency")
    peer = peers.moto()
    peer.environment = Path(sys.prefix)
    peer.measure([engine.pass_and_choice(1), engine.pass_and_choice(5), engine.INPUT, 1])
    assert peer.reason == ""
    assert len(peer.samples) == 1


def test_a_peer_that_fails_has_a_reason():
    peer = peers.WorkflowPeer("one", "one", "raise SystemExit('no luck')")
    peer.environment = Path(sys.prefix)
    peer.measure([])
    assert "no luck" in peer.reason
    peer.measure([])
    assert not peer.samples


def test_goals_compare_medians_and_a_peer_without_figures_misses(tmp_path):
    bench = WorkflowBench(BenchRequest(tmp_path, quick=True))
    bench._figures = {"transition": [5.0, 10.0, 90.0], "in a row": [100.0], "by the engine": [104.0]}
    bench._moto.samples = [500.0, 100.0, 900.0]
    goals = bench._goals = bench._engine_goals()
    assert [(goal.value, goal.met) for goal in goals] == [(50.0, True), (1.04, True)]
    bench._moto.samples = []
    assert [goal.met for goal in bench._engine_goals()] == [False, True]
    bench._figures |= {"express": [6.0, 9.0], "noop": [10.0, 10.0], "chained": [2.0], "standard": [29.0]}
    bench._figures["standard-one"] = [2.0]
    bench._dbos.samples = [12.0]
    found = {goal.name.split(",")[0]: goal for goal in bench._live_goals()}
    assert (found["express"].value, found["express"].met) == (None, False)  # the last of the two: no sequence
    assert found["a chain of 10 no-op tasks in one group against one call"].value == 2.0
    assert found["a durable task against a step of DBOS"].value == 0.25
    assert bench._live_goals()[0].value == 0.75
    assert len(bench._live_table().rows) == 14
    bench.draw(tmp_path / "goals.png")
    assert (tmp_path / "goals.png").stat().st_size > 1000
