"""The documents are true: what they name is there."""

import re

import pytest
import typer
from places import ROOT

from aliquot.cli.app import app
from aliquot.sim.report import RunReport
from aliquot_bench.benches import BENCHES

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def anchors_of(page):
    """Return the names of a page's sections, as GitHub makes them, and of its own anchors."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found) for found in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    ]
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_sections_that_are_there(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target and (not target or target.endswith(".md")):
            assert anchor in anchors_of(page.parent / target if target else page), f"{target}#{anchor}"


def test_the_reference_names_every_benchmark():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    listed = re.search(r"The benchmarks are (.*?)\.\n", page, re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", listed)) == set(BENCHES)


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
