"""The reference page lists what the tables of the code have, and its example runs."""

import re
from pathlib import Path

from workflow_definitions import machine

from aliquot.expressions.functions import FUNCTIONS
from aliquot.workflow.interpreter import Finish
from aliquot.workflow.language.fields import LEAVING, REFUSED_FIELDS, STATE_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "workflows.md").read_text(encoding="utf-8")
SAME_WITH_PATH = {"MaxConcurrencyPath", "ToleratedFailureCountPath", "ToleratedFailurePercentagePath"}


def test_every_field_stands_in_the_table_with_its_languages():
    rows = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3:
            rows.update(dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells))
    for name, field in STATE_FIELDS.items():
        if name in SAME_WITH_PATH:
            continue
        languages = "all" if len(field.languages) == 3 else ", ".join(field.languages)
        assert rows[name][2] == languages, name
        if field.kinds == LEAVING:
            assert rows[name][1].startswith("Task, Parallel, Map, Pass, Wait"), name


def test_refused_fields_and_functions_are_listed():
    for name in [*REFUSED_FIELDS, "DISTRIBUTED"]:
        assert f"`{name}`" in PAGE
    assert f"`{' '.join(FUNCTIONS)}`" in PAGE


def test_the_example_runs():
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    definition = machine(A={"Type": "Task", "Resource": "f", "End": True})
    names = {"definition": definition, "now": 1.0}
    exec(example, names)  # noqa: S102 - the page's own lines
    assert names["commands"] == [Finish("SUCCEEDED", {"result": 2})]
