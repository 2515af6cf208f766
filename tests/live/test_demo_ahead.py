"""The demonstration's start ahead of a call, on a real server."""

from msgspec.structs import replace

from aliquot.live.invocations.journal.replay import replay_file
from aliquot_bench.demo.ahead import AheadResult, show_ahead


def test_a_cold_start_is_avoided_because_the_sandbox_was_started_ahead_and_the_record_says_so(tmp_path):
    shown = show_ahead(tmp_path)
    assert shown.ok, shown.text()
    assert shown.cold >= 1
    assert shown.hidden_s >= 0.08  # the code alone takes as long to import
    replayed = replay_file(tmp_path / "ahead")
    assert not replayed.differences


def test_a_call_that_found_no_sandbox_is_no_success():
    good = AheadResult(8, 9, 0.5, 0.01, 0.4)
    assert good.ok
    assert "8 of 9 calls were cold, 500 ms the first" in good.text()
    assert not replace(good, warm_s=0.6).ok
    assert not replace(good, warm_s=None).ok
    assert "NO cold start was avoided in 9 calls" in replace(good, warm_s=None).text()
