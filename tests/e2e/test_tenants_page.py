"""The page on tenants does what it says: its lines are taken from it and run on a server."""

import re

import pytest
from live_platform import QuickPlatform
from pages import DocumentPage

from aliquot.testing.waiting import wait_until

PAGE = DocumentPage("how-to/tenants.md")
CALLS = 160  # for each tenant, instead of the page's 400


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform"), "--devices", "host:1") as platform:
        (platform.folder / "hold.py").write_text(PAGE.blocks("python")[0])
        yield platform


def test_a_tenant_with_half_the_weight_gets_half_as_much_and_top_shows_it(platform):
    shop, lab, weigh = PAGE.section("Make the tenants").commands()
    keys = {words[-1]: platform.aliquot(*words).splitlines()[0] for words in (shop, lab)}
    platform.aliquot(*weigh)
    (show,) = PAGE.section("See who gets what").commands()
    for key in keys.values():  # the first calls deploy and start
        platform.run("python", "hold.py", 1, ALIQUOT_URL=platform.url, ALIQUOT_KEY=key)
    assert len(re.findall(r"^ {4}ALIQUOT_URL=\S+ ALIQUOT_KEY=\S+ python hold.py 400 &$", PAGE.text, re.MULTILINE)) == 2
    callers = [
        platform.begin("python", "hold.py", CALLS, ALIQUOT_URL=platform.url, ALIQUOT_KEY=key) for key in keys.values()
    ]
    wait_until(
        lambda: sum(flow["arrivals"] for flow in platform.operate("GET", "status")["flows"]),
        lambda arrived: arrived >= 1.2 * CALLS,
        what="more calls than one tenant makes",
    )
    shown = platform.aliquot(*show)
    found = {row["tenant"]: row for row in platform.operate("GET", "status")["tenants"]}
    for caller in callers:
        out, err = caller.communicate()
        assert caller.returncode == 0, out + err
    assert found["lab"]["due_10s"] == pytest.approx(1 / 3)
    assert 0.15 < found["lab"]["got_10s"] < 0.5  # of some hundred samples, and they did not begin at one moment
    assert re.search(r"lab +accelerators +0\.5 +33%", shown)
    assert "a virtual time counts within its tenant" in shown


def test_limits_keys_and_the_end(platform):
    for words in PAGE.section("Limits, keys, and the end").commands():
        platform.aliquot(*words)
    assert "lab" not in {one["name"] for one in platform.json("namespace", "list")}
