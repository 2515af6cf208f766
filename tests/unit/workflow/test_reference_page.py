"""The reference page lists what the tables of the code have, and its example runs."""

import re
from pathlib import Path

from workflow_definitions import machine

from aliquot.expressions.functions import FUNCTIONS
from aliquot.workflow.interpreter import Finish
from aliquot.workflow.language import read_definition
from aliquot.workflow.language.fields import (
    ALL_KINDS,
    MACHINE_FIELDS,
    PROCESSOR_FIELDS,
    REFUSED_FIELDS,
    ROOT_FIELDS,
    STATE_FIELDS,
)
from aliquot.workflow.language.mapping import BATCH_FIELDS
from aliquot.workflow.language.rules import CATCH_FIELDS, RETRY_FIELDS
from aliquot.workflow.query.choice import OPERATORS
from aliquot.workflow.query.intrinsic_functions import INTRINSICS
from aliquot.workflow.query.jsonata_syntax import ADDED

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "workflows.md").read_text(encoding="utf-8")
SAME_WITH_PATH = {"MaxConcurrencyPath", "ToleratedFailureCountPath", "ToleratedFailurePercentagePath"}


def table_rows(columns):
    """Return the rows of the page's tables with so many columns, by the names in their first cell."""
    rows = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == columns:
            rows.update(dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells))
            rows[cells[0]] = cells
    return rows


def test_every_field_stands_in_the_table_with_its_states_and_languages():
    rows = table_rows(3)
    for name, field in STATE_FIELDS.items():
        if name in SAME_WITH_PATH:
            continue
        _, states, said = rows[name]
        assert said == ("all" if len(field.languages) == 3 else ", ".join(field.languages)), name
        told, _, extra = states.partition(";")[0], None, states.partition("in Python also ")[2]
        kinds = set(ALL_KINDS) - {told.removeprefix("all but ")} if told.startswith("all") else set(told.split(", "))
        assert kinds == set(field.kinds), name
        assert set(filter(None, extra.split(", "))) == set(field.python_kinds), name


def test_every_field_inside_another_is_listed():
    rows = table_rows(2)

    def told(row):
        return set(re.findall(r"`([\w.]+)`", rows[row][1]))

    assert set(RETRY_FIELDS) <= told("a rule of `Retry`")
    assert {*CATCH_FIELDS, "ResultPath", "Output"} == told("a rule of `Catch`")
    batch = told("`ItemBatcher`")
    assert {name.removesuffix("Path") for name in BATCH_FIELDS} == batch - {"Path"}
    assert set(PROCESSOR_FIELDS) <= told("`ItemProcessor`")
    assert set(MACHINE_FIELDS) == told("a branch of `Branches`")
    assert all(f"`{name}`" in PAGE for name in ROOT_FIELDS)
    operators = told("an operator of `Choices`")
    orders = {"Equals", "LessThan", "GreaterThan", "LessThanEquals", "GreaterThanEquals"}
    made = {f"{kind}{order}" for kind in ("String", "Numeric", "Timestamp") for order in orders} | {"BooleanEquals"}
    rest = operators - orders - {"String", "Numeric", "Timestamp", "Path"}
    assert made | {f"{name}Path" for name in made} | rest == set(OPERATORS)
    assert operators >= orders


def test_every_function_of_the_query_languages_is_listed():
    assert set(re.findall(r"`States\.(\w+)`", PAGE)) & set(INTRINSICS) == set(INTRINSICS)
    assert len(INTRINSICS) == 18
    for name in ADDED:
        assert re.search(rf"`\${name}\b", PAGE), name


def test_a_field_that_is_not_listed_is_a_mistake():
    for kind in ALL_KINDS:
        _, complaints = read_definition(machine(A={"Type": kind, "Sideways": 1}))
        assert any(one.field == "Sideways" and not one.warning for one in complaints), kind


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
