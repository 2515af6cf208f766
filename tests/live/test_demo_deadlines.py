"""The demonstration's calls with deadlines, on a real server."""

from msgspec.structs import replace

from aliquot.testing.server import LiveServer
from aliquot_bench.demo.deadlines import DeadlineResult, show_deadlines


def test_some_calls_are_promised_and_others_refused(tmp_path):
    with LiveServer(tmp_path / "data", "--admission", "reservation") as server:
        shown = show_deadlines(server)
    assert shown.kept > 0, shown.text()
    assert shown.refused_s, shown.text()
    assert "were refused after" in shown.text()


def test_many_broken_promises_are_no_success():
    good = DeadlineResult(9, 1, [0.01], 300.0)
    assert good.ok
    assert not replace(good, broken=2).ok
    assert not replace(good, refused_s=[]).ok
    assert "9 of these ended in time. 1 were refused after 10 ms, with an offer such as 300 ms." in good.text()
