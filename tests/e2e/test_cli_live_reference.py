"""The pages on the SDK and the command line name what there is."""

import inspect
import re

import pytest
import typer
from places import DOCS

import aliquot
from aliquot.cli.app import app
from aliquot.cli.failures import _CODES
from aliquot.sdk import errors

REFERENCE = DOCS / "reference"
SDK, CLI = ((REFERENCE / name).read_text(encoding="utf-8") for name in ("sdk.md", "cli.md"))
STUDY = {"simulate", "compare", "policies", "bench", "study", "workload", "reproduce"}


def test_every_argument_of_the_decorator_and_the_app_is_explained():
    for signature in (inspect.signature(aliquot.App.function), inspect.signature(aliquot.App)):
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                assert re.search(rf"^\| .*`{name}`", SDK, re.MULTILINE), name


def test_every_error_is_explained_and_in_the_tree():
    for name, value in vars(errors).items():
        if isinstance(value, type) and value is not errors.SdkError:
            assert f"| `{name}` |" in SDK, name
            assert name in errors.__doc__, name


def test_every_command_is_on_the_page():
    names = set(typer.main.get_command(app).list_commands(None))
    for name in names - STUDY:
        assert f"| `aliquot {name}" in CLI, name


@pytest.mark.parametrize("entry", _CODES, ids=lambda entry: entry[2])
def test_exit_codes_are_as_the_page_says(entry):
    _, code, kind = entry
    assert re.search(rf"^\| {code} \| .*`{kind}`", CLI, re.MULTILINE)
