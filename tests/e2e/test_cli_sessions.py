"""`aliquot session` and what else names one, as people run it."""

import pytest
from live_platform import QuickPlatform


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform")) as platform:
        platform.deploy("echo", "def main(args): return args")
        yield platform


def test_a_session_is_begun_used_shown_and_ended(platform):
    assert "aliquot session create" in platform.aliquot("session", "list")
    session = platform.aliquot("session", "create", "analysis", "--user", "ann", "-p", "depth=3").strip()
    assert len(session) == 32
    record = platform.json("invoke", "echo", "-p", "a=1", "--session", session)
    assert {"key": "session", "value": session} in record["annotations"]
    platform.aliquot("invoke", "echo", "--session", session, "--no-wait")
    platform.aliquot("invoke", "echo")
    (listed,) = platform.json("session", "list")
    assert (listed["sessionId"], listed["name"], listed["invocations"]) == (session, "analysis", 2)
    assert f"{session}  analysis  ann" in platform.aliquot("session", "list")
    shown = platform.json("session", "show", session)
    assert (shown["user"], shown["metadata"]) == ("ann", {"depth": 3})
    assert '"depth": 3' in platform.aliquot("session", "show", session)
    assert platform.json("activation", "list", "--session", session, "--count") == {"activations": 2}
    assert platform.aliquot("session", "end", session) == f"ended {session}\n"
    assert platform.json("session", "list") == []


def test_a_session_that_is_not_there_is_named(platform):
    for command in (("session", "show", "nonsense"), ("session", "end", "nonsense")):
        assert "There is no session 'nonsense'" in platform.aliquot(*command, code=5)
    said = platform.aliquot("invoke", "echo", "--session", "nonsense", code=5)
    assert "echo: There is no session 'nonsense', or it has ended." in said
    assert "there is no function ecko" in platform.aliquot("invoke", "ecko", "--session", "nonsense", code=5)


def test_how_long_a_session_may_be_idle_is_read_strictly(platform):
    said = platform.aliquot("up", "--session-idle", "soon", code=2)
    assert "--session-idle: 'soon' is not a time" in said
