"""Simulations of graphs: stages are calls that arrive when the stages before them have ended."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, FunctionSpec, GraphSpec, GraphStage, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.graphs import read_graphs
from aliquot.sim.recorder import CallLine
from aliquot.sim.report import report

FUNCTIONS = {name: FunctionSpec(name, times=Times(run_s, 0, 0)) for name, run_s in (("a", 1), ("b", 2), ("c", 4))}
DIAMOND = GraphSpec(
    "diamond",
    (
        GraphStage("first", "a"),
        GraphStage("left", "b", ("first",)),
        GraphStage("right", "c", ("first",)),
        GraphStage("last", "a", ("left", "right")),
    ),
)


def lines_of(graph: GraphSpec, *arrivals: Arrival, devices: int = 2) -> list[CallLine]:
    found: list[CallLine] = []
    there = [DeviceSpec(f"gpu-{number}", concurrency=1, price=10) for number in range(devices)]
    scenario = Scenario(there, FUNCTIONS, ListedWorkload(arrivals), check=True, graphs={graph.name: graph})
    recorder = simulate(scenario, PolicySettings("fcfs"), on_end=found.append)
    assert report("fcfs", 0, recorder, there).per_function[graph.name].completed == len(arrivals)
    return found


def test_an_execution_ends_with_its_last_stage_and_costs_what_its_calls_cost():
    lines = lines_of(DIAMOND, Arrival(0, "diamond", deadline_s=6, cost_limit=80))
    assert [(line.function, line.ended_s) for line in lines] == [
        ("a", 1),
        ("b", 3),
        ("c", 5),
        ("a", 6),
        ("diamond", 6),
    ]
    assert [line.met for line in lines] == [None, None, None, None, True]
    assert lines[-1].cost == 80


def test_an_execution_that_is_late_or_dear_has_not_met_its_limits():
    assert lines_of(DIAMOND, Arrival(0, "diamond", deadline_s=5.9))[-1].met is False
    assert lines_of(DIAMOND, Arrival(0, "diamond", cost_limit=79))[-1].met is False


def test_two_tenants_execute_one_graph_with_functions_of_their_own():
    lines = lines_of(DIAMOND, Arrival(0, "diamond", "x"), Arrival(0, "diamond", "y"), devices=4)
    assert sorted((line.tenant, line.ended_s) for line in lines if line.function == "diamond") == [("x", 6), ("y", 6)]


@pytest.mark.parametrize(("probability", "calls"), [(0.0, 10), (1.0, 20)])
def test_a_stage_runs_with_its_probability(probability: float, calls: int):
    cascade = GraphSpec("cascade", (GraphStage("small", "a"), GraphStage("large", "c", ("small",), probability)))
    lines = lines_of(cascade, *(Arrival(20 * number, "cascade") for number in range(10)))
    assert sum(line.function != "cascade" for line in lines) == calls


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[g.one]\nfunction = 'z'\n", r"\[g.one\]: function 'z' is not in the functions file"),
        ("[g.one]\nfunction = 'a'\nafter = ['two']\n", "after names 'two'"),
        ("[g.one]\nfunction = 'a'\nafter = ['one']\n", "wait for each other in a circle"),
        ("[g.one]\nfunction = 'a'\nprobability = 2\n", "probability 2.0 is not from 0 to 1"),
        ("[g.one]\nfunction = 'a'\nbefore = []\n", "it takes function, after, probability"),
        ("[a.one]\nfunction = 'a'\n", "has the name of a function"),
        ("[g]\n", "it has no stages"),
        ("[g\n", "is not a TOML file"),
    ],
)
def test_a_wrong_file_of_graphs_is_refused_with_its_place(tmp_path, text, complaint):
    (tmp_path / "graphs.toml").write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_graphs(tmp_path / "graphs.toml", FUNCTIONS)


def test_graphs_are_read_from_a_file(tmp_path):
    path = tmp_path / "graphs.toml"
    path.write_text("[g.one]\nfunction = 'a'\n[g.two]\nfunction = 'b'\nafter = ['one']\nprobability = 0.5\n")
    stages = (GraphStage("one", "a"), GraphStage("two", "b", ("one",), 0.5))
    assert read_graphs(path, FUNCTIONS) == {"g": GraphSpec("g", stages)}


def test_executions_are_promised_or_refused_as_one():
    lines: list[CallLine] = []
    cascade = GraphSpec("cascade", (GraphStage("small", "a"), GraphStage("large", "c", ("small",), 0.5)))
    arrivals = [Arrival(number, "cascade", deadline_s=12) for number in range(20)]
    there = [DeviceSpec("gpu-1", concurrency=1)]
    scenario = Scenario(there, FUNCTIONS, ListedWorkload(arrivals), check=True, graphs={"cascade": cascade})
    settings = PolicySettings("fcfs", admission="reservation", params={"reservation": {"margin_s": "0"}})
    slo = report("fcfs", 0, simulate(scenario, settings, on_end=lines.append), there).slo
    whole = [line for line in lines if line.function == "cascade"]
    assert len(whole) == len(arrivals)
    assert {line.end for line in whole} == {"completed", "rejected"}
    assert slo.broken == {}
    assert all(line.met for line in whole if line.promised)
    assert sum(line.promised for line in whole) > 20 / 5  # skipped stages have given their places back
