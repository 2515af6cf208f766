"""The profiler: looks at sandboxes at work, rows by second and minute, their files, and the advice that follows."""

import os

import pytest
from msgspec.structs import replace
from rig import on_a_rig
from test_service import ECHO, summary

from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.live.profile import profiler as profiling
from aliquot.live.profile.log import MIN_BYTES, ProfileLog, read_frames, segment_paths
from aliquot.live.profile.process_counters import ProcessCounters
from aliquot.live.profile.reading import Advice, advise, quantile, read_profiles
from aliquot.live.profile.records import GRAM_BUCKETS, ProfileRow, gram, merged
from aliquot.testing.waiting import wait_on_loop

run = on_a_rig(deployed=(ECHO,))


def row(t_s=0, *, calls=1, share=0.5, memory=100 * MIB, cold=False, function="f", grams=None):
    return ProfileRow(
        "t", function, t_s, 1, calls, calls, 0, 0.25, share, 1.0, memory, 512 * MIB, 10, 20, 3, 4, cold, grams or {1: 1}
    )


@run
async def test_calls_of_an_application_are_a_row_of_the_second_and_of_the_minute(rig):
    for _ in range(3):
        rig.service.submit(rig.call(ECHO))
        await rig.turn()
        rig.node.pids = dict.fromkeys(rig.node.started, os.getpid())
        await rig.finish()
    await wait_on_loop(lambda: not rig.service.profiler._awake, what="the profiler to fall asleep")
    rig.service.profiler.stop()
    ((key, rows),) = read_profiles(rig.folder, 1, None).items()
    assert key == ("guest", "echo")
    assert sum(each.calls for each in rows) == 3
    assert sum(each.starts for each in rows) == 1
    assert max(each.at_once for each in rows) == 1
    assert sum(each.system_calls for each in rows) > 0  # of this test's process, which stands for the sandbox
    assert rows[0].cold
    assert rows[0].memory_bytes > MIB
    (minutes,) = read_profiles(rig.folder, 60, None).values()
    assert sum(each.calls for each in minutes) == 3
    assert all(each.t_s % 60 == 0 for each in minutes)


@run
async def test_it_sleeps_while_nothing_runs_and_says_what_its_looks_cost(rig):
    assert not rig.service.profiler._awake
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.turn()
    assert rig.service.profiler._awake
    await wait_on_loop(lambda: rig.service.status()["profiler"]["looks"] > 2, what="some looks")
    await rig.finish()
    await rig.until_ended(call)
    assert summary(call)["start"] == "cold"
    await wait_on_loop(lambda: not rig.service.profiler._awake, what="the profiler to fall asleep")
    told = rig.service.status()["profiler"]
    assert 0 < told["spent_s"] <= told["elapsed_s"]


@run
async def test_looks_take_at_most_a_hundredth_of_a_core_however_long_one_takes(rig):
    clock = iter([0.0, 0.05])  # the look takes 50 ms of the processor
    pauses = []
    loop = type("Loop", (), {"call_later": lambda _, pause_s, __: pauses.append(pause_s)})()
    rig.service.profiler.wake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling.time, "thread_time", lambda: next(clock))
        patch.setattr(profiling.asyncio, "get_running_loop", lambda: loop)
        patch.setattr(rig.service.profiler, "look", lambda _: True)
        rig.service.profiler._tick()
    rig.service.profiler._timer = None
    assert pauses == [pytest.approx(0.05 * 99)]


def test_counters_of_a_process_grow_and_those_of_an_ended_one_are_zero(tmp_path):
    counters = ProcessCounters(os.getpid())
    before, state = counters.transfers(), counters.state()
    (tmp_path / "f").write_bytes(b"x" * 5000)
    after = counters.transfers()
    assert after.written_bytes - before.written_bytes >= 5000
    assert after.system_calls > before.system_calls
    assert state.memory_bytes > MIB
    assert state.faults > 0
    counters.close()
    assert counters.transfers().system_calls == 0
    assert ProcessCounters(2**22 + 1).state().memory_bytes == 0


def test_seconds_after_a_cold_start_count_in_a_minute_only_if_there_is_nothing_else():
    found = merged([row(60, share=1.0, cold=True, calls=2), row(61, share=0.2), row(62, share=0.3)], 60, 60)
    assert (found.calls, found.share, found.cold, found.at_once) == (4, 0.3, False, 2)
    assert found.grams == {1: 3}
    assert merged([row(60, share=1.0, cold=True)], 60, 60).share == 1.0


def test_grams_tell_orders_apart_and_stay_within_their_buckets():
    assert gram("call", "inner f") != gram("inner f", "call")
    assert {gram(str(number)) for number in range(1000)} == set(range(GRAM_BUCKETS))


def test_advice_is_the_quantile_of_typical_rows_and_a_tenth_more():
    rows = [row(at, share=0.2) for at in range(96)] + [row(200, share=0.9)] * 4
    assert advise(rows) == Advice(0.22, 112 * MIB)
    cold = [row(at, share=1.0, memory=4096 * MIB, cold=True) for at in range(50)]
    assert advise(rows + cold) == advise(rows)
    assert advise(rows[:10]) == Advice(None, None)
    assert advise([replace(each, request=0.0) for each in rows]).share is None
    assert quantile(range(1, 101)) == 95


def test_files_are_bounded_and_keep_the_newest_rows(tmp_path):
    log = ProfileLog(tmp_path / "profile", MIN_BYTES)
    for at in range(3000):
        log.add([row(at, function=f"f{number}") for number in range(3)])
    log.close()
    sizes = [path.stat().st_size for path in segment_paths(tmp_path / "profile", "seconds")]
    assert sum(sizes) <= MIN_BYTES
    kept = read_profiles(tmp_path, 1, None)["t", "f1"]
    assert [each.t_s for each in kept] == list(range(3000 - len(kept), 3000))
    assert len(kept) > 50


def test_a_torn_end_is_cut_off_and_rows_go_on_behind_it(tmp_path):
    log = ProfileLog(tmp_path / "profile", MIN_BYTES)
    log.add([row(1)])
    log.add([row(2)])
    log.close()
    path = segment_paths(tmp_path / "profile", "seconds")[0]
    path.write_bytes(path.read_bytes()[:-3])
    log = ProfileLog(tmp_path / "profile", MIN_BYTES)
    log.add([row(3)])
    log.close()
    assert [rows[0].t_s for rows in read_frames(path)] == [1, 3]


def test_a_folder_without_profiles_is_named(tmp_path):
    with pytest.raises(InputError, match="there are no profiles in"):
        read_profiles(tmp_path, 1, None)
