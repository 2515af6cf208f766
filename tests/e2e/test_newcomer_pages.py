"""The pages that a newcomer reads first do what they say: their lines are taken from them and run on a server."""

import re

import pytest
from live_platform import QuickPlatform
from package_index import PackageIndex
from pages import DocumentPage
from places import DOCS
from wheels import make_wheel

HUMANIZE = "def naturalsize(size):\n    return f'{size / 1e6:.1f} MB'\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    folder = tmp_path_factory.mktemp("platform")
    with PackageIndex(make_wheel("humanize", "4.0", HUMANIZE)) as index, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", index.url)
        with QuickPlatform(folder) as platform:
            yield platform


def run_program(platform, page, name):
    """Save the first block of a page, run it as the page says, and compare what it prints."""
    (platform.folder / name).write_text(page.blocks("python")[0])
    assert page.commands("python") == [[name]]
    assert platform.run("python", name) == page.blocks("text")[0]


def test_many_calls_are_made_at_once_and_the_slow_ones_are_found(platform):
    page = DocumentPage("how-to/many-calls.md")
    run_program(platform, page, "squares.py")
    latency, slowest, why, invoke = page.commands()
    assert re.search(r"^run +[\d.]+ m?s", platform.aliquot(*latency), re.MULTILINE)
    listed = platform.json(*slowest)
    assert len(listed) == 5
    assert all(one["duration"] >= 500 for one in listed)
    assert "squares.square" in platform.aliquot(*why)
    assert "gpu" not in platform.aliquot("list"), "no column for what no function has"
    process = platform.begin("aliquot", *invoke)
    out, err = process.communicate()
    assert '"value": 49' in out
    assert re.search(r"ran .*; [\d.]+ m?s here, of it [\d.e-]+ m?s on the way", err), err


def test_a_missing_requirement_shows_at_deploy_and_an_added_one_is_installed(platform):
    page = DocumentPage("how-to/requirements.md")
    (platform.folder / "humanize.py").unlink(missing_ok=True)
    packages = platform.folder / "packages"
    packages.mkdir()
    (packages / "humanize.py").write_text(HUMANIZE)
    (platform.folder / "sizes.py").write_text(page.blocks("python")[0])
    deploy, invoke = page.commands()
    process = platform.begin("aliquot", *deploy, PYTHONPATH=str(packages))
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert page.blocks("text")[0].strip() in err
    required = page.blocks("python")[0].replace("@app.function\n", '@app.function(requirements=["humanize"])\n')
    (platform.folder / "sizes.py").write_text(required)
    process = platform.begin("aliquot", *deploy, PYTHONPATH=str(packages))
    _, err = process.communicate()
    assert (process.returncode, "warning" in err) == (0, False), err
    assert '"value": "123.5 MB"' in platform.aliquot(*invoke)


def test_a_chain_runs_and_is_removed_with_its_app(platform):
    page = DocumentPage("how-to/chains.md")
    run_program(platform, page, "steps.py")
    delete, listing = page.section("Remove it").commands()
    platform.aliquot(*delete)
    assert "steps." not in platform.aliquot(*listing)


def test_the_index_names_fifteen_things_whose_sections_exist():
    text = DocumentPage("how-to/README.md").text
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", text, re.MULTILINE)
    assert [int(number) for number, *_ in rows] == list(range(1, 16))
    for _, _, where in rows:
        for target, section in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", where):
            page = (DOCS / "how-to" / target).read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not section or section in slugs, (target, section)


def test_every_page_is_in_the_index():
    linked = set(re.findall(r"\]\(([\w-]+\.md)", DocumentPage("how-to/README.md").text))
    assert linked == {path.name for path in (DOCS / "how-to").glob("*.md")} - {"README.md"}
