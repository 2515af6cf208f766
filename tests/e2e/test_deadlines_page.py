"""The page on deadlines does what it says: its lines are taken from it and run, in order."""

import pytest
from live_platform import QuickPlatform
from pages import DocumentPage

PAGE = DocumentPage("how-to/deadlines.md")
SERVE, LEARN, CALLS, STORY = PAGE.blocks("python")
REFUSED = 6  # exit code


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return the output of each command and program of the page, in their order."""
    folder = tmp_path_factory.mktemp("platform")
    for name, text in (("serve.py", SERVE), ("learn.py", LEARN), ("calls.py", CALLS), ("story.py", STORY)):
        (folder / name).write_text(text)
    deploy, *taken, late, dear = [words for words in PAGE.commands() if words[0] != "up"]
    assert PAGE.commands("python") == [["learn.py"], ["calls.py"], ["story.py"]]
    with QuickPlatform(folder, "--admission", "reservation", "--price", "host=500") as platform:
        done = [platform.run("aliquot", *deploy), platform.run("python", "learn.py")]
        done += [platform.run("aliquot", *words) for words in taken]
        done += [platform.run("aliquot", *words, code=REFUSED) for words in (late, dear)]
        return [*done, platform.run("python", "calls.py"), platform.run("python", "story.py")]


def test_calls_are_promised_or_refused_as_the_page_says(printed):
    _, learnt, first, record, limited, late, dear, *_ = printed
    assert len(learnt.splitlines()) == 10
    assert "a cat in one" in first
    assert "'promised': True" in record
    assert "'met': True" in record
    assert "a cat in two" in limited
    assert "it would be accepted with deadline" in late
    assert "and may cost 0.001" in dear


def test_a_program_takes_the_offer(printed):
    first, refused, patient = printed[-2].splitlines()
    assert first == "a cat in five"
    assert refused.startswith("refused: never needs ")
    assert patient == "a cat in six"


def test_a_workflow_is_promised_as_one(printed):
    *described, refused = printed[-1].splitlines()
    assert described == [f"A Cat In Picture {number}" for number in range(9)]
    assert refused.startswith("refused: never needs ")
