"""`aliquot workflow check|graph|test` for Python and YAML files, and definitions made from sequences."""

import json
import re

import pytest
from command_line import run_here
from places import DOCS

from aliquot.cli.workflow import app, sequence_definition
from aliquot.workflow.language import read_definition

FILE = """
import aliquot

app = aliquot.App("shop")


class SoldOut(Exception):
    pass


@app.function
def reserve(item):
    if item == "moon":
        raise SoldOut("there is one moon")
    return {"item": item, "price": 3}


@app.function
def charge(price):
    raise ConnectionError("there is no bank here")


@app.workflow
def buy(item):
    try:
        held = reserve(item)
    except SoldOut as error:
        return str(error)
    aliquot.sleep("1h")
    return charge(held["price"])
"""
YAML = """
StartAt: Wait
States:
  Wait: {Type: Wait, Seconds: 3600, Next: Done}
  Done: {Type: Succeed}
"""


@pytest.fixture
def aliquot(tmp_path):
    (tmp_path / "shop.py").write_text(FILE)
    (tmp_path / "flow.yaml").write_text(YAML)

    def run(*arguments):
        return run_here("workflow", *arguments, cwd=tmp_path, environment={"HOME": str(tmp_path), "COLUMNS": "80"})

    return run


def test_a_python_file_is_checked_and_drawn(aliquot):
    assert aliquot("check", "shop.py").out == "valid, 5 states\n"
    assert aliquot("check", "shop.py:buy").code == 0
    drawn = aliquot("graph", "shop.py").out
    assert "reserve [Task shop.reserve]" in drawn
    assert "  → return str(error)  (catch SoldOut)" in drawn


def test_all_mistakes_of_a_python_file_are_told_with_their_lines(aliquot, tmp_path):
    wrong = FILE.replace("    return charge(held", "    print(held)\n    import os\n    return charge(held")
    (tmp_path / "wrong.py").write_text(wrong)
    told = aliquot("check", "wrong.py")
    assert told.code == 1
    assert [line.split(": ")[0].rpartition(":")[2] for line in told.out.splitlines() if "wrong.py:" in line] == [
        "30",
        "31",
    ]
    assert [one["line"] for one in json.loads(aliquot("check", "wrong.py", "--json").out)] == [30, 31]
    assert "cannot be translated" in aliquot("graph", "wrong.py").err


def test_a_workflow_is_chosen_by_its_name(aliquot, tmp_path):
    assert "has no workflow sell; it has buy" in aliquot("check", "shop.py:sell").err.replace("\n", " ")
    (tmp_path / "two.py").write_text(FILE + "\n\n@app.workflow\ndef wait():\n    aliquot.sleep(3)\n")
    assert "two.py:buy or two.py:wait" in aliquot("check", "two.py").err.replace("\n", " ")
    (tmp_path / "none.py").write_text("import aliquot\napp = aliquot.App('a')\n")
    assert "put @app.workflow over a function" in aliquot("check", "none.py").err.replace("\n", " ")


def test_cases_of_a_python_file_run_its_functions_where_they_give_no_results(aliquot, tmp_path):
    cases = {
        "workflow": "shop.py:buy",
        "cases": [
            {"name": "sold out", "input": {"item": "moon"}, "output": "there is one moon"},
            {"name": "paid", "input": {"item": "sun"}, "tasks": {"charge": {"output": "paid 3"}}, "output": "paid 3"},
            {"name": "no bank", "input": {"item": "sun"}, "error": "ConnectionError"},
        ],
    }
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    told = aliquot("test", "cases.json")
    assert (told.code, told.out) == (0, "passed sold out\npassed paid\npassed no bank\n")
    (tmp_path / "cases.json").write_text(json.dumps({**cases, "cases": cases["cases"][:1]}))
    assert "never taken: aliquot.sleep('1h') → charge" in aliquot("test", "cases.json").out


def test_the_data_of_a_state_is_shown(aliquot, tmp_path):
    case = {"name": "paid", "input": {"item": "sun"}, "tasks": {"charge": {"output": "paid 3"}}}
    (tmp_path / "cases.json").write_text(json.dumps({"workflow": "shop.py", "cases": [case]}))
    shown = aliquot("test", "cases.json", "--state", "reserve").out.splitlines()
    held = '{"item":"sun","price":3}'
    assert shown[2] == '  TaskScheduled parameters {"item":"sun"}'
    assert shown[4] == f"  TaskSucceeded output {held}"
    assert shown[5] == f'  TaskStateExited output {held}, assigned {{"held":{held}}}'


def test_yaml_is_read_and_what_json_cannot_hold_is_refused(aliquot, tmp_path):
    assert aliquot("check", "flow.yaml").out == "valid, 2 states\n"
    (tmp_path / "cases.yml").write_text("workflow: flow.yaml\ncases:\n- {name: waits, path: [Wait, Done]}\n")
    assert aliquot("test", "cases.yml").out == "passed waits\n"
    (tmp_path / "date.yaml").write_text("StartAt: 2026-01-31\n")
    assert "Write dates in quotes" in aliquot("check", "date.yaml").err
    (tmp_path / "bad.yaml").write_text("a: [")
    assert "cannot be read as YAML" in aliquot("check", "bad.yaml").err


def test_every_command_stands_in_the_reference_and_has_help_with_an_example_or_a_reason(aliquot):
    page = (DOCS / "reference" / "workflows.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert re.search(rf"`(aliquot workflow )?{name}\b", page), name
        told = aliquot(name, "--help").out
        assert max(map(len, told.splitlines())) <= 80, name
        assert len(told.split()) > 30, name


def test_a_sequence_becomes_a_chain_of_tasks():
    definition = sequence_definition("s", ["/_/a", "/whisk.system/utils/b", "/_/a"])
    machine, complaints = read_definition(definition)
    assert (list(machine.states), complaints) == (["a", "b", "a (3)"], ())
    assert machine.states["b"].resource.name == "/whisk.system/utils/b"
    assert machine.states["a"].next == "b"
    assert machine.states["a (3)"].next is None


def test_neighbours_of_an_app_that_could_be_a_group_are_a_warning(tmp_path):
    lines = ["import aliquot", "app = aliquot.App('a')"]
    for name, settings in {"one": "gpu=0.5", "two": "gpu=0.5", "three": "gpu=0.25", "last": "rerun=False"}.items():
        lines += [f"@app.function({settings})", f"def {name}(x):", "    return x"]
    lines += ["@app.workflow", "def flow(x):", "    return last(three(two(one(x))))"]

    def check(text):
        (tmp_path / "flow.py").write_text(text)
        return run_here("workflow", "check", "flow.py", cwd=tmp_path, environment={"HOME": str(tmp_path)})

    told = check("\n".join(lines))
    assert told.code == 0
    assert told.out.count("warning") == 1
    assert "state 'one', Resource: with 'two' after it, it would fit into one group (a.one, a.two)" in told.out
    grouped = "\n".join(lines).replace("gpu=0.5", "gpu=0.5, group='g'").replace("gpu=0.25", "gpu=0.25, rerun=True")
    assert "warning" not in check(grouped).out


GALLERY = """
import aliquot

app = aliquot.App("gallery")


class Picture:
    def __init__(self, name):
        self.name = name


@app.function
def load(name):
    return {"picture": Picture(name), "score": len(name)}


@app.function
def title(picture):
    return picture.name.upper()


@app.workflow
def show(name, titled):
    made = load(name)
    return title(made["picture"]) if titled else made
"""


def test_cases_hand_objects_on_and_show_them_by_the_names_of_their_classes(aliquot, tmp_path):
    (tmp_path / "gallery.py").write_text(GALLERY)
    loaded = {"picture": {"type": "Picture"}, "score": 3}
    cases = [
        {"name": "titled", "input": {"name": "sun", "titled": True}, "output": "SUN"},
        {"name": "whole", "input": {"name": "sun", "titled": False}, "output": loaded},
    ]
    (tmp_path / "cases.json").write_text(json.dumps({"workflow": "gallery.py", "cases": cases}))
    told = aliquot("test", "cases.json", "--state", "load")
    assert (told.code, told.err) == (0, "")
    assert 'TaskSucceeded output {"picture":{"type":"Picture"},"score":3}' in told.out
    read = json.loads(aliquot("test", "cases.json", "--json", "--state", "load").out)
    assert [row["output"] for row in read["cases"][0]["data"] if row["event"] == "TaskSucceeded"] == [loaded]
    (tmp_path / "cases.json").write_text(json.dumps({"workflow": "gallery.py", "cases": [{**cases[1], "output": 1}]}))
    wrong = aliquot("test", "cases.json")
    assert wrong.code == 1
    assert "expected the output 1, not {'picture': {'type': 'Picture'}, 'score': 3}" in wrong.out
