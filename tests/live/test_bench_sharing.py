"""The sharing benchmark: figures computed from the functions' counts, and a tiny run of each part."""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.errors import InputError
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.result import ResultTable, at_most
from aliquot_bench.sharing import bench, elastic, isolation, memory, overhead, platform, scaling
from aliquot_bench.sharing.bench import NOT_ENFORCED, SharingBench, annotate_goals, annotate_tables
from aliquot_bench.sharing.data import DataPart, transfer_by_file
from aliquot_bench.sharing.elastic import BorrowTrial, ElasticPart, change
from aliquot_bench.sharing.functions import matrix, training
from aliquot_bench.sharing.isolation import IsolationPart, ShareSample, figures
from aliquot_bench.sharing.memory import MemoryPart
from aliquot_bench.sharing.overhead import AS_CALLED, BARE_RUN, OverheadPart
from aliquot_bench.sharing.packing import PackingPart, make_scenario, p99
from aliquot_bench.sharing.part import SharingSizes
from aliquot_bench.sharing.platform import unenforced
from aliquot_bench.sharing.scaling import ScalingPart, fit
from aliquot_bench.sharing.windows import (
    WindowCounts,
    common_windows,
    deviations,
    mean_shares,
    read_counts,
    window_shares,
)

TINY = SharingSizes(
    repetitions=1,
    isolation_s=0.9,
    elastic_s=0.15,
    training_steps=100,
    training_pairs=2,
    scaling_s=0.05,
    memory_s=1,
    weights_bytes=8_000_000,
    packing_calls=200,
    packing_seeds=1,
)


def counted(first, counts, *, began=None, ended=None):
    began = first / 10 if began is None else began
    ended = (first + len(counts)) / 10 if ended is None else ended
    return WindowCounts(began, ended, sum(counts), first, counts)


@pytest.fixture(scope="module", autouse=True)
def devices():
    """One server per sharing policy for all parts, because starting one takes longer than the measurements."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        started = {}

        @contextmanager
        def kept(sharing):
            if sharing not in started:
                started[sharing] = stack.enter_context(platform.host_device(sharing))
            yield started[sharing]

        for module in (isolation, elastic, overhead, scaling, memory):
            patch.setattr(module, "host_device", kept)
        yield


def run(part):
    steps = []
    part.run(steps.append)
    assert len(steps) == part.steps
    return part


def test_only_whole_windows_in_which_all_were_at_work_count():
    early, late = counted(100, [5] * 20, ended=11.95), counted(102, [5] * 18, began=10.25)
    assert common_windows([early, late], warm_up=0) == range(103, 119)
    assert common_windows([early, late], warm_up=3) == range(106, 119)


def test_shares_are_of_the_work_that_all_have_done():
    one, other = counted(0, [9, 30, 10, 9]), counted(0, [1, 10, 30, 1])
    assert mean_shares([one, other], range(1, 3)) == [50, 50]
    assert window_shares([one, other], range(1, 3)) == [[75, 25], [25, 75]]
    assert deviations([[75, 25], [50, 50]]) == [25, 0]


def test_a_window_in_which_nobody_did_anything_says_nothing():
    assert window_shares([counted(0, [1, 0, 1]), counted(0, [1, 0, 3])], range(3)) == [[50, 25], [50, 75]]


@given(st.lists(st.lists(st.integers(0, 50), min_size=8, max_size=8), min_size=1, max_size=8))
def test_shares_add_up_to_the_device(counts):
    tallies = [counted(0, [1 + count for count in each]) for each in counts]
    assert sum(mean_shares(tallies, range(8))) == pytest.approx(100)
    assert all(sum(window) == pytest.approx(100) for window in zip(*window_shares(tallies, range(8)), strict=True))


@given(st.floats(0, 3), st.floats(0, 3))
def test_work_up_to_a_moment_and_from_it_is_all_work(moment, length):
    whole = counted(7, [4, 0, 9, 2, 6], began=0.73, ended=1.17)
    assert whole.between(0, moment) + whole.between(moment, 9) == pytest.approx(whole.turns)
    assert 0 <= whole.between(moment, moment + length) <= whole.turns + 1e-9


def test_errors_are_of_the_worst_and_deviations_are_told_apart():
    samples = [ShareSample([51, 49], [1, 2], 10), ShareSample([53, 47], [5, 4], 10)]
    found = figures((0.5, 0.5), samples)
    assert found.means == [52, 48]
    assert (found.error, found.deviation_of_means, found.deviation_over_repetitions, found.deviation_over_windows) == (
        2,
        2,
        1,
        3,
    )


def test_the_means_of_unequal_slices_deviate_about_what_each_asked_for():
    assert figures((0.1, 0.9), [ShareSample([10, 90], [0, 0], 1)]).deviation_of_means == pytest.approx(0)


def test_utilisation_is_the_work_of_both_against_a_whole_device():
    borrower, owner = counted(0, [10] * 40), counted(10, [90] * 10)
    trial = BorrowTrial(0, borrower, owner, 4, 1, whole_per_second=1000, arrived=0.05)
    assert trial.utilisation(2) == pytest.approx((10 * 20 + 90 * 10) / 2000)
    assert change(2, 10) == pytest.approx(-80)


def test_a_straight_line_is_known_as_one():
    assert fit([1, 2, 4], [3, 5, 9]).r2 == pytest.approx(1)
    assert fit([1, 2, 4], [3, 5, 9]).slope == pytest.approx(2)
    assert fit([1, 2, 4, 8], [1, 9, 2, 3]).r2 < 0.1
    assert fit([1, 2], [3, 3]).r2 == 0


def test_the_loop_counts_every_turn_in_its_window():
    found = read_counts(matrix.main({"seconds": 0.25, "mark": 3}))
    assert sum(found.counts) == found.turns > 3
    assert 3 <= len(found.counts) <= 4
    assert found.began < found.marked < found.ended
    assert read_counts(matrix.main({"turns": 7})).turns == 7
    assert matrix.main({"turns": 0})["counts"] == []


def test_the_training_run_learns():
    assert training.main({"steps": 200})["right"] > 0.9


def test_without_numpy_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(platform.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="numpy is not installed"):
        SharingBench(BenchRequest(tmp_path))


def test_what_is_measured_without_enforcement_meets_no_goal():
    log = "without slices of host devices are not enforced: /sys/fs/cgroup: no controller cpu\naliquot answers on x"
    lacking = unenforced(log)
    assert lacking == "slices of host devices are not enforced: /sys/fs/cgroup: no controller cpu"
    goal = at_most("error", 0.1, 1)
    (marked,) = annotate_goals([goal], lacking)
    assert goal.met
    assert not marked.met
    assert "nothing is enforced here" in marked.name
    tables = [ResultTable("Packing", [""], [["1"]])]
    assert annotate_tables(tables, lacking)[0].title.startswith(NOT_ENFORCED)
    assert annotate_goals([goal], unenforced("aliquot answers on x")) == [goal]
    assert annotate_tables(tables, "") == tables


def test_a_part_that_fails_is_named_and_the_rest_goes_on(monkeypatch, tmp_path):
    class Failing(MemoryPart):
        def run(self, on_step):
            raise MeasurementError("there is no device")

    monkeypatch.setattr(bench, "PARTS", (Failing, DataPart))
    chosen = SharingBench(BenchRequest(tmp_path), TINY)
    result = chosen.run(lambda _: None)
    assert result.tables[-1].rows == [["memory", "there is no device"]]
    assert not result.goals[0].met
    chosen.draw(tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0


@pytest.mark.long
def test_isolation_says_what_each_got():
    part = run(IsolationPart(TINY, [(0.5, 0.5), (0.3, 0.7)]))
    (table,) = part.tables()
    assert len(table.rows) == 4
    for row in table.rows:
        assert sum(float(share) for share in row[2].split(", ")) == pytest.approx(100, abs=0.1)
    assert len(part.goals()) == 8
    assert len(part.panels()) == 4


def test_elastic_lends_what_hard_limits_would_not():
    part = run(ElasticPart(TINY))
    (table,) = part.tables()
    by_mode = {row[0]: row for row in table.rows}
    assert list(by_mode) == ["hard", "elastic", "elastic_guarded", "KNIX (published)"]
    assert all(row[1] > 0 and row[2] > 0 for row in table.rows)
    assert len(part.goals()) == 4
    assert [len(panel.lines) for panel in part.panels()] == [2, 2, 2]


def test_overhead_stands_beside_what_was_published():
    part = run(OverheadPart(TINY))
    (table,) = part.tables()
    bare, sliced, called = table.rows[:3]
    assert 0 < sliced[1] < called[1]
    assert bare[5] is None
    assert table.rows[4][5] == pytest.approx(0.6, abs=0.01)  # KNIX's TensorFlow, by KNIX's equation
    assert part.goals()[0].value in {None, called[5]}


@pytest.mark.parametrize(("cpu_s", "value"), [(10, 1), (9, None)])
def test_a_bare_run_that_had_to_wait_for_its_core_is_compared_with_nothing(cpu_s, value):
    part = OverheadPart(TINY)
    part._record(BARE_RUN, 10, cpu_s)
    part._record(AS_CALLED, 10.1, 10)
    (goal,) = part.goals()
    assert goal.value == (None if value is None else pytest.approx(value))
    assert goal.met is (value is not None)
    assert ("void: the bare run waited 10 %" in goal.name) is (value is None)


def test_scaling_fits_a_line_through_every_count():
    part = run(ScalingPart(TINY, (1, 8)))
    assert [[row[0] for row in table.rows] for table in part.tables()] == [[1, 8]] * 2
    assert all(0 <= goal.value <= 1 for goal in part.goals())
    assert part.panels()


def test_an_overrun_of_memory_ends_that_function_alone():
    part = run(MemoryPart(TINY))
    (table,) = part.tables()
    assert [row[1] for row in table.rows] == ["yes"] * 6, table.rows
    assert table.rows[2][2] == "The action exhausted its memory and was aborted."
    assert part.goals()[0].met


def test_weights_are_handed_over_whole_by_both_ways_and_inside_a_sandbox_as_they_are():
    part = run(DataPart(TINY))
    (table,) = part.tables()
    assert [row[1] for row in table.rows[:2]] == ["file", "memory"]
    assert all(isinstance(figure, float) for row in table.rows[:-1] for figure in row[2:5])
    faster, same = part.goals()
    assert faster.value is not None
    assert same.value == 1


def test_weights_that_cannot_be_handed_over_are_an_error_with_the_last_words():
    with pytest.raises(MeasurementError, match="weights could not be handed over"):
        transfer_by_file(-8)


def test_packing_is_compared_on_the_same_calls():
    assert list(make_scenario("pairs", 0.7, 50, 1).workload) == list(make_scenario("pairs", 0.7, 50, 1).workload)
    part = run(PackingPart(TINY, mixes=("pairs", "few large"), loads=(0.9,)))
    detail, summary = part.tables()
    assert len(detail.rows) == 2 * 2 * 3
    assert all(row[4] <= row[5] and 0 <= row[7] <= 1 for row in detail.rows)
    assert any(row[7] > 0 for row in detail.rows)
    assert [row[2] for row in summary.rows if row[1] == "first_fit"] == [0, 0]
    assert len(part.panels()[0].lines) == 3
    assert p99(range(200)) == 198


WITHOUT_GROUPS = """
from pathlib import Path
from aliquot_bench.base import BenchRequest
from aliquot_bench.sharing import bench
from aliquot_bench.sharing.part import SharingSizes
bench.PARTS = (bench.OverheadPart,)
result = bench.SharingBench(BenchRequest(Path()), SharingSizes(training_steps=50, training_pairs=1)).run(lambda _: None)
print(result.to_markdown())
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="covering /sys/fs/cgroup takes root")
def test_without_control_groups_the_same_runs_and_says_that_nothing_is_enforced():
    covered = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"']
    done = subprocess.run([*covered, sys.executable, "-c", WITHOUT_GROUPS], capture_output=True, text=True, check=False)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"this machine does not let /sys/fs/cgroup be covered: {done.stderr.strip()}")
    assert "NOTHING IS ENFORCED HERE: slices of host devices are not enforced" in done.stdout, done.stderr
    assert "**NOTHING IS ENFORCED HERE: Overhead" in done.stdout
    assert "| **no** |" in done.stdout
    assert "| yes |" not in done.stdout
