"""speedscope, a viewer of other people, opens the file of `aliquot trace` and shows what is in it."""

import gzip
import json

import pytest
from browser import needs_browser, open_browser
from live_platform import QuickPlatform
from npm_modules import MODULES

VIEWER = MODULES / "speedscope" / "dist" / "release" / "index.html"
pytestmark = [
    pytest.mark.long,
    needs_browser,
    pytest.mark.skipif(not VIEWER.exists(), reason="npm could not install speedscope"),
]


def test_speedscope_shows_the_sandboxes_and_runs_of_a_trace(tmp_path):
    with QuickPlatform(tmp_path) as platform:
        with platform.client() as client:
            client.deploy("traced", "def main(args): return args")
        for _ in range(3):
            platform.aliquot("invoke", "traced")
        platform.aliquot("trace", "--out", "trace.json.gz")
        written = gzip.decompress((platform.folder / "trace.json.gz").read_bytes())
    (tmp_path / "trace.json").write_bytes(written)
    events = json.loads(written)["traceEvents"]
    names = names_of(events)
    with open_browser() as browser:
        page = browser.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(VIEWER.as_uri())
        page.set_input_files("input[type=file]", tmp_path / "trace.json")
        page.wait_for_function("document.title.includes('trace.json')")
        page.keyboard.press("n")  # the next thread: the first has the waits of the function
        page.keyboard.press("3")  # a table of all slices with their times
        page.wait_for_function("document.body.innerText.includes('(2/')")
        shown = page.inner_text("body")
    assert complaints == []
    assert all(name in shown for name in names), shown


def names_of(events):
    """Return the names of the device, of its sandbox, and of the slices in it."""
    (run, *_) = [event for event in events if event["ph"] == "X" and event["name"] == "start"]
    place = [each["args"]["name"] for each in events if each["ph"] == "M" and each["pid"] == run["pid"]
             and (each["name"] == "process_name" or each["tid"] == run["tid"]) and "name" in each["args"]]  # fmt: skip
    slices = {each["name"] for each in events
              if each["ph"] == "X" and (each["pid"], each["tid"]) == (run["pid"], run["tid"])}  # fmt: skip
    assert len(slices) > 1
    return {*place, *slices}
