"""`aliquot workflow` checks, draws and tests definitions without a server."""

import json

import pytest
from command_line import run_here
from workflow_definitions import NESTED, machine

FLOW = machine(
    Resize={
        "Type": "Task",
        "Resource": "resize",
        "Retry": [{"ErrorEquals": ["Busy"]}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Bad"}],
        "Next": "Ask",
    },
    Ask={
        "Type": "Task",
        "Resource": "ask.waitForTaskToken",
        "TimeoutSeconds": 60,
        "ResultPath": "$.answer",
        "Next": "Done",
    },
    Bad={"Type": "Fail", "Error": "Bad"},
    Done={"Type": "Succeed"},
)
GOOD = {
    "name": "the second attempt succeeds",
    "input": {"image": "a"},
    "tasks": {"Resize": [{"error": "Busy"}, {"output": {"w": 10}, "seconds": 3}], "Ask": {"output": "yes"}},
    "output": {"w": 10, "answer": "yes"},
    "path": ["Resize", "Ask", "Done"],
}


@pytest.fixture
def aliquot(tmp_path):
    def run(*arguments):
        return run_here("workflow", *arguments, cwd=tmp_path, environment={"HOME": str(tmp_path), "COLUMNS": "200"})

    return run


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value))
    return name


def test_check_tells_all_mistakes(aliquot, tmp_path):
    assert aliquot("check", write(tmp_path, "good.json", FLOW)).out == "valid, 4 states\n"
    wrong = machine(A={"Type": "Pass", "Next": "B"}, C={"Type": "Odd"})
    told = aliquot("check", write(tmp_path, "wrong.json", wrong))
    assert told.code == 1
    assert "state 'A', Next: there is no state 'B'" in told.out
    assert "state 'C', Type: expected one of Task" in told.out
    listed = json.loads(aliquot("check", "--json", "wrong.json").out)
    assert [row["state"] for row in listed] == ["C", "A"]


def test_graph_writes_a_picture(aliquot, tmp_path):
    assert aliquot("graph", write(tmp_path, "flow.json", FLOW), "--svg", "flow.svg").code == 0
    assert (tmp_path / "flow.svg").read_text().startswith("<svg ")
    told = aliquot("graph", "flow.json", "--svg", "nowhere/flow.svg")
    assert told.code != 0
    assert "cannot be written" in told.out + told.err


def test_a_file_that_is_no_json_is_refused(aliquot, tmp_path):
    (tmp_path / "x.json").write_text("{")
    told = aliquot("check", "x.json")
    assert told.code != 0
    assert "x.json cannot be read as JSON" in told.err
    assert "cannot be read" in aliquot("check", "gone.json").err


def test_graph_draws_inner_machines(aliquot, tmp_path):
    drawn = aliquot("graph", write(tmp_path, "flow.json", NESTED)).out.splitlines()
    assert drawn[0] == "(start) → P"
    assert "  → F  (catch States.ALL)" in drawn
    assert drawn[drawn.index("  branch 2:") + 2] == "    P2 [Pass]"
    assert "    I2 [Task f]" in drawn
    assert "expected" in aliquot("graph", write(tmp_path, "bad.json", {})).err


def test_cases_run_in_virtual_time_and_transitions_never_taken_are_listed(aliquot, tmp_path):
    write(tmp_path, "flow.json", FLOW)
    told = aliquot("test", write(tmp_path, "cases.json", {"workflow": "flow.json", "cases": [GOOD]}))
    assert (told.code, told.out) == (0, "passed the second attempt succeeds\nnever taken: Resize → Bad\n")
    bad = {"name": "caught", "tasks": {"Resize": {"error": "X"}}, "error": "Bad"}
    told = aliquot("test", write(tmp_path, "cases.json", {"workflow": FLOW, "cases": [GOOD, bad]}))
    assert (told.code, "never taken" in told.out) == (0, False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output": 1}, "expected the output 1, not"),
        ({"error": "Other"}, "expected Other, but the execution ended with SUCCEEDED"),
        ({"path": ["Resize", "Done"]}, "expected the path Resize → Done, not Resize → Ask → Done"),
        ({"tasks": {}}, "the state 'Resize' runs a task, and the case has no result for it"),
        ({"tasks": {**GOOD["tasks"], "Ask": {"seconds": 100}}}, "ended with FAILED: States.Timeout"),
    ],
)
def test_a_case_that_differs_fails_and_says_why(aliquot, tmp_path, change, said):
    told = aliquot("test", write(tmp_path, "cases.json", {"workflow": FLOW, "cases": [{**GOOD, **change}]}))
    assert told.code == 1
    assert said in told.out


def test_a_wrong_file_of_cases_is_refused(aliquot, tmp_path):
    told = aliquot("test", write(tmp_path, "flow.json", FLOW))
    assert "flow.json is a definition; a file of cases has workflow, such as flow.json, and a list of cases" in told.err
    for wrong in ({}, {"workflow": FLOW, "cases": [{"nam": 1}]}, {"workflow": {}, "cases": [{"name": "x"}]}):
        assert aliquot("test", write(tmp_path, "cases.json", wrong)).code not in {0, 1}
