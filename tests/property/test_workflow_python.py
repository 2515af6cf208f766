"""A workflow in Python has the same result as plain Python and as the graph that its source is read into."""

import json
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import given, note
from python_modules import forget, module_of, shell_of
from python_workflows import workflows
from strategies import examples_divided_by

from aliquot.sdk.workflow import here


def called_here(workflow, arguments):
    try:
        return "SUCCEEDED", json.loads(json.dumps(workflow(**arguments)))
    except Exception as error:  # noqa: BLE001 - any error of a generated program
        return "FAILED", type(error).__name__


def run_as_graph(module, arguments):
    shell = shell_of(module, module.flow)
    finished = shell.run(arguments)
    note(f"the graph took {shell.path}, {finished.cause}")
    return finished.status, finished.output if finished.error is None else finished.error


@examples_divided_by(2)
@given(workflows(), st.integers(-2, 9), st.lists(st.integers(0, 9), max_size=3))
def test_the_graph_gives_what_plain_python_gives(source, number, values):
    note(source)
    module = module_of(source)
    arguments = {"n": number, "xs": values}
    try:
        with patch.object(here, "sleep_for"):  # waits take no time
            expected = called_here(module.flow, arguments)
        assert run_as_graph(module, arguments) == expected
    finally:
        forget(module)
