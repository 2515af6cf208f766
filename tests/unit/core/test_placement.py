"""Placements of graphs: which are found, in which order, and what is refused."""

from random import Random

import pytest

from aliquot.core.admission import cut, pareto
from aliquot.core.admission.placement import KindChoice, Placements, StageChoices
from aliquot.core.admission.records import Offer, Prefer
from aliquot.core.errors import InputError


def stage(name: str, *after: str, cpu: tuple[float, float] = (4, 1), gpu: tuple[float, float] = (1, 3)) -> StageChoices:
    return StageChoices(name, (KindChoice("cpu", *cpu), KindChoice("gpu", *gpu)), after)


def random_graph(stages: int, *, width: int, seed: int = 1) -> list[StageChoices]:
    """Return stages that wait for one or two of the `width` stages before them."""
    random = Random(seed)
    made = []
    for number in range(stages):
        base = random.uniform(1, 100)
        choices = [
            KindChoice(kind, base / speed * random.uniform(0.8, 1.2), base * price * random.uniform(0.8, 1.2))
            for kind, speed, price in (("cpu", 1, 1), ("small", 2, 1.3), ("large", 5, 1.8), ("huge", 10, 2.5))
        ]
        near = range(max(0, number - width), number)
        after = {str(random.choice(near)) for _ in range(random.choice((1, 2)))} if number else set()
        made.append(StageChoices(str(number), tuple(choices), tuple(sorted(after))))
    return made


def test_stages_in_a_row_add_up_and_stages_side_by_side_end_with_the_last() -> None:
    placements = Placements([stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c")])
    assert placements.points() == [(3, 12), (6, 8), (9, 6), (12, 4)]
    fastest = placements.candidates(3, None)[0]
    assert fastest.kinds == {"a": "gpu", "b": "gpu", "c": "gpu", "d": "gpu"}


def test_candidates_come_cheapest_first_or_as_preferred() -> None:
    placements = Placements([stage("a", cpu=(1.5, 1)), stage("b", "a", cpu=(9, 1))])
    assert [each.cost for each in placements.candidates(None, None)] == [2, 4, 6]
    assert [each.cost for each in placements.candidates(None, None, Prefer.LATENCY)] == [6, 4, 2]
    assert placements.candidates(None, None, Prefer.BALANCED)[0].cost == 4
    assert len(placements.candidates(None, None, limit=2)) == 2


def test_an_offer_keeps_the_deadline_if_money_can_buy_it() -> None:
    placements = Placements([stage("a")])
    assert placements.offer(2, 1) == Offer(2, 3)
    assert placements.offer(0.5, 2) == Offer(4, 2)
    assert placements.offer(0.5, 0.5) == Offer(1, 3)
    assert placements.never(2, 1)
    assert not placements.never(4, 1)


def test_a_graph_without_stages_takes_no_time() -> None:
    assert Placements([]).points() == [(0, 0)]


@pytest.mark.parametrize(
    ("stages", "complaint"),
    [
        ([stage("a", "b"), stage("b", "a")], "a, b wait for each other"),
        ([stage("a", "z")], "after names 'z'"),
        ([stage("a"), stage("a")], "'a' is listed twice"),
        ([StageChoices("a", ())], "'a' has no kind of device"),
        ([stage("a", cpu=(-1, 1))], "latency -1 s"),
        ([stage("a", cpu=(1, float("nan")))], "cost nan"),
    ],
)
def test_a_malformed_graph_is_refused_with_its_stage(stages: list[StageChoices], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Placements(stages)


def test_forty_stages_in_a_row_are_exact() -> None:
    placements = Placements(random_graph(40, width=1))
    assert placements.exact
    assert len(placements) > 1000


def test_a_large_graph_is_rounded_and_keeps_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = random_graph(10, width=3, seed=2)
    exact = Placements(stages)
    assert exact.exact
    monkeypatch.setattr(cut, "MAX_LABELS", 100)
    rounded = Placements(stages)
    assert not rounded.exact
    assert rounded.points()[0][0] == exact.points()[0][0]
    assert rounded.points()[-1] == exact.points()[-1]
    for latency_s, cost in exact.points():
        near = rounded.candidates(1.001 * latency_s, None, limit=1)
        assert near[0].cost <= 1.1 * cost


def test_a_long_frontier_keeps_the_cheapest_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = random_graph(12, width=1)
    exact = Placements(stages)
    monkeypatch.setattr(pareto, "MAX_LABELS", 400)
    thinned = Placements(stages)
    assert not thinned.exact
    assert thinned.points()[0] == exact.points()[0]
    for latency_s, cost in exact.points():
        assert thinned.candidates(1.1 * latency_s, None, limit=1)[0].cost <= cost
