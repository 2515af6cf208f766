"""The page on traces does what it says: its lines are taken from it and run, without any download."""

import os
import re
from itertools import chain

import pytest
from command_line import run_here
from pages import DocumentPage

from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.files import needed_files
from aliquot.sim.importers.request import ImportRequest

PAGE = DocumentPage("how-to/traces.md")


def run_lines(page, folder):
    for words in page.commands():
        done = run_here(*words, cwd=folder, environment=dict(os.environ))
        assert done.code == 0, done.err
    return done.out


def test_a_sample_is_made_imported_and_compared(tmp_path):
    assert "has the shortest mean latency" in run_lines(PAGE.section("Without a download"), tmp_path)


def test_own_calls_are_simulated(tmp_path):
    section = PAGE.section("Your own calls")
    for name, text in zip(("calls.csv", "functions.csv"), section.blocks("text"), strict=True):
        (tmp_path / name).write_text(text)
    printed = run_lines(section, tmp_path)
    assert "fair_resident" in printed
    assert "calls.csv on 1 device, D = 2" in printed


@pytest.mark.parametrize("kind", IMPORTERS)
def test_the_page_names_the_files_of_every_trace(kind, tmp_path):
    for name in chain.from_iterable(needed_files(kind, ImportRequest(tmp_path, profile="own"))):
        folder, _, file = name.partition("/")
        assert re.search(rf"\| `{kind}` \| `{folder}` \|.*`{re.escape(file)}`", PAGE.text), name
    assert f"- **`{kind}`**" in PAGE.text


def test_missing_files_are_named_with_the_way_to_get_them(tmp_path):
    (tmp_path / "data").mkdir()
    words = ["workload", "import", "azure_llm", "--data", "data", "--arrivals", "A.csv", "--functions", "F.csv"]
    done = run_here(*words, cwd=tmp_path, environment=dict(os.environ))
    assert done.code == 2
    assert "_code.csv, azure_llm_2023/AzureLLMInferenceTrace_conv.csv; docs/how-to/traces.md" in done.err
