"""`aliquot whatif` on the journal of a real server: the lines of the page, and questions that are refused."""

import json
import re

import pytest
from live_platform import LivePlatform
from places import DOCS

PAGE = (DOCS / "how-to" / "whatif.md").read_text(encoding="utf-8")
CODE = re.search(r"```python\n(# shop\.py\n.*?)```", PAGE, re.DOTALL)[1]


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(CODE)
    with LivePlatform(folder, "--devices", "host:1", "--slots", "2") as platform:
        yield platform


def test_the_lines_of_the_page_compare_policies_on_real_calls(platform):
    for line in re.findall(r"^\$ (.*)", PAGE, re.MULTILINE):
        shown = platform.run(*line.split())
    assert re.match(r"52 calls in the last 10m; simulating the policy that ran gives mean [+-]\d+%", shown)
    assert re.search(r"^measured +\S+ m?s", shown, re.MULTILINE)
    assert re.search(r"^sjf +\S+ m?s", shown, re.MULTILINE)
    assert (platform.folder / "whatif.png").read_bytes().startswith(b"\x89PNG")
    platform.aliquot("whatif", "--policy", "fcfs", "--devices", "3", "--json", "w.json", "--export", "a.csv", "f.csv")
    report = json.loads((platform.folder / "w.json").read_text())
    ran, fcfs = report["simulated"]
    assert report["measured"]["calls"] == ran["calls"] == fcfs["calls"] == 52
    assert fcfs["latency_s"]["p95"] < ran["latency_s"]["p95"]  # three devices instead of one
    simulated = platform.aliquot("simulate", "--arrivals", "a.csv", "--functions", "f.csv", "--policy", "fcfs")
    assert "fcfs" in simulated


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--policy", "nobody"), "there is no 'nobody'"),
        (("--policy", "fcfs,fcfs"), "--policy: 'fcfs,fcfs' has an empty or repeated part"),
        (("--set", "sjf.x=1"), "--set: sjf is not among the policies of this run"),
        (("--tenant-weight", "nobody=2"), "--tenant-weight: nobody had no calls; there are calls of guest"),
        (("--data", "elsewhere"), "--data: "),
        (("--last", "soon"), "--last: "),
    ],
)
def test_a_wrong_question_says_what_it_takes(platform, options, complaint):
    assert complaint in platform.aliquot("whatif", *options, code=2)
