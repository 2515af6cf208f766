"""How the command line formats results."""

import io

import pytest
from rich.console import Console

from aliquot.cli import model
from aliquot.cli.activation import _annotation
from aliquot.cli.results import count, table
from aliquot.core.errors import InputError


def test_brackets_in_a_table_are_text():
    made = table("a [title]", "why", ">size")
    made.add_row("pip install 'aliquot[learn]'", "[/]")
    console = Console(file=io.StringIO(), width=80)
    console.print(made)
    shown = console.file.getvalue()
    assert "a [title]" in shown
    assert "pip install 'aliquot[learn]'" in shown
    assert "[/]" in shown


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_one_is_not_many(number, text):
    assert count(number, "file") == text


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("waitTime", 919, "919 ms"), ("initTime", 1980, "1.98 s"), ("wasted", 5_002_000, "5 MiB"), ("kind", "x", "x")],
)
def test_annotations_have_their_units(key, value, text):
    assert _annotation(key, value) == text


@pytest.mark.parametrize(
    ("versions", "serving", "asked", "why"),
    [
        ([], 0, None, "nothing has been learned yet; aliquot model train makes the first version"),
        ([], 0, 3, "nothing has been learned yet"),
        ([1, 2], 0, None, "no version is in use; it takes one of 1, 2"),
        ([1, 2], 2, 7, "there is no version 7; there are 1, 2"),
    ],
)
def test_a_version_that_is_not_there_is_named_with_those_that_are(versions, serving, asked, why):
    state = {
        "serving": {"version": serving},
        "versions": [{"manifest": {"version": version}} for version in versions],
    }
    with pytest.raises(InputError, match=why):
        model._find(state, asked)
