"""The eviction benchmark: its cache and bound, and a small run on the real traces if they are there."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.policies.eviction import EVICTION
from aliquot_bench.base import BenchRequest
from aliquot_bench.environments import MeasurementError
from aliquot_bench.eviction import bench, peer
from aliquot_bench.eviction.bench import EvictionBench
from aliquot_bench.eviction.cache import belady, replay

DATA = Path(__file__).parents[2].parent / "shared" / "data"
numbers = st.lists(st.integers(0, 12), min_size=1, max_size=80)


@given(numbers, st.integers(1, 10), st.sampled_from(sorted(EVICTION)))
def test_no_policy_passes_the_bound_where_all_are_of_one_size(asked, size, policy):
    requests = [(number, 1) for number in asked]
    assert replay(requests, size, policy).hits <= belady(requests, size).hits


@given(numbers, st.sampled_from(sorted(EVICTION)))
def test_a_cache_with_room_for_all_misses_each_once(asked, policy):
    requests = [(number, 1 + number) for number in asked]
    assert replay(requests, 1000, policy).hits == (len(asked) - len(set(asked))) / len(asked)


@given(numbers, st.integers(1, 40), st.sampled_from(sorted(EVICTION)))
def test_less_room_never_has_more_than_room_for_all(asked, size, policy):
    requests = [(number, 1 + 3 * number) for number in asked]
    assert replay(requests, size, policy).byte_hits <= replay(requests, 1000, policy).byte_hits


@pytest.mark.parametrize("size", [5, 14])
def test_lecar_is_at_most_a_point_below_the_better_of_its_experts(size):
    skewed = Random(2)
    requests = [(int(skewed.paretovariate(0.7)), 1) for _ in range(6000)]
    hits = {policy: replay(requests, size, policy).hits for policy in ("lru", "lfu", "lecar")}
    assert hits["lecar"] > max(hits["lru"], hits["lfu"]) - 0.01


def test_lru_by_hand():
    assert replay([(1, 1), (2, 1), (1, 1), (3, 1), (2, 1)], 2, "lru").hits == 1 / 5
    assert belady([(1, 1), (2, 1), (1, 1), (3, 1), (2, 1)], 2).hits == 2 / 5


@pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not at hand")
def test_the_benchmark_says_every_goal_also_without_its_peer(monkeypatch, tmp_path):
    def missing(*_):
        raise MeasurementError("there is no network")

    monkeypatch.setattr(peer, "hit_rates", missing)
    monkeypatch.setattr(bench, "QUICK_REQUESTS", 2000)
    run = EvictionBench(BenchRequest(DATA, quick=True))
    steps = []
    result = run.run(steps.append)
    assert len(steps) == run.steps
    assert [goal.met for goal in result.goals if "libcachesim" in goal.name] == [False] * 8
    assert all("there is no network" in goal.name for goal in result.goals if "libcachesim" in goal.name)
    assert len(result.tables) == 4
    run.draw(tmp_path / "o.png")
    assert (tmp_path / "o.png").stat().st_size > 0
