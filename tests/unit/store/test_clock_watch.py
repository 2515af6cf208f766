"""After a jump of the wall clock no record is deleted by age for a while."""

import pytest

from aliquot.live.store.clock_watch import MAX_GAP_MS, PAUSE_S, ClockWatch

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def watch(newest_ms=NOW_MS):
    return ClockWatch(newest_ms=newest_ms, wall_ms=NOW_MS, steady_s=100)


def test_a_clock_that_runs_evenly_is_trusted():
    watched = watch()
    assert all(watched.is_trusted(wall_ms=NOW_MS + s * 1000, steady_s=100 + s) for s in range(0, 100_000, 60))


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS, 10**12])
def test_a_clock_that_jumps_is_trusted_again_after_a_pause(jump_ms):
    watched = watch()
    assert watched.is_trusted(wall_ms=NOW_MS + 60_000, steady_s=160)
    assert not watched.is_trusted(wall_ms=NOW_MS + 120_000 + jump_ms, steady_s=220)
    assert watched.jump_ms == jump_ms
    assert not watched.is_trusted(wall_ms=NOW_MS + 180_000 + jump_ms, steady_s=280)
    # It is corrected, which is a jump, too.
    assert not watched.is_trusted(wall_ms=NOW_MS + 240_000, steady_s=340)
    later_s = 340 + PAUSE_S
    assert watched.is_trusted(wall_ms=NOW_MS + (later_s - 100) * 1000, steady_s=later_s)


@pytest.mark.parametrize(("newest_ms", "trusted"), [
    (None, True), (NOW_MS - DAY_MS // 2, True), (NOW_MS + 10_000, True),
    (NOW_MS - MAX_GAP_MS - 1, False), (NOW_MS + DAY_MS, False), (0, False),
])  # fmt: skip
def test_at_the_start_the_newest_record_tells_whether_the_clock_is_right(newest_ms, trusted):
    watched = watch(newest_ms)
    assert watched.is_trusted(wall_ms=NOW_MS, steady_s=100) is trusted
    assert watched.is_trusted(wall_ms=NOW_MS + PAUSE_S * 1000, steady_s=100 + PAUSE_S)
