"""The documents are true: what they name is there."""

import re

import pytest
import typer
from places import ROOT

from aliquot.cli.app import app
from aliquot.sim.report import RunReport

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_are_there(page):
    places = (ROOT, ROOT / "src" / "aliquot", ROOT / "benchmarks" / "src" / "aliquot_bench")
    for name in re.findall(r"`([\w./-]+/[\w-]+\.py)`", page.read_text(encoding="utf-8")):
        planned = "least_served" in name  # the how-to's own example
        assert planned or any((place / name).exists() for place in places), name


def test_the_reference_names_every_figure_of_the_report():
    page = (ROOT / "docs" / "reference" / "simulate.md").read_text(encoding="utf-8")
    for field in RunReport.__struct_fields__:
        assert f"`{field}" in page, field


def test_the_readme_names_only_commands_that_exist():
    names = set(typer.main.get_command(app).list_commands(None))
    for page in (ROOT / "README.md", ROOT / "docs" / "reference" / "simulate.md"):
        for used in re.findall(r"aliquot (?!`)([a-z]+)\b", page.read_text(encoding="utf-8")):
            assert used in names, used
