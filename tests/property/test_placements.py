"""The efficient placements of a graph equal those that are found by listing all placements."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.admission.network import in_order
from aliquot.core.admission.placement import KindChoice, Placements, StageChoices
from aliquot.core.admission.records import Offer

KINDS = ("cpu", "gpu", "tpu")
numbers = st.integers(0, 12).map(float)


@st.composite
def graphs(draw: st.DrawFn) -> list[StageChoices]:
    """Draw up to six stages, each of which may wait for any stages before it."""
    stages: list[StageChoices] = []
    for number in range(draw(st.integers(1, 6))):
        kinds = KINDS[: draw(st.integers(1, 3))]
        choices = tuple(KindChoice(kind, draw(numbers), draw(numbers)) for kind in kinds)
        before = [stage.name for stage in stages]
        after = tuple(draw(st.lists(st.sampled_from(before), unique=True, max_size=3))) if before else ()
        stages.append(StageChoices(f"stage {number}", choices, after))
    return draw(st.permutations(stages))


def evaluate(stages: list[StageChoices], chosen: dict[str, KindChoice]) -> tuple[float, float]:
    """Return latency and cost of a placement, stage by stage."""
    after = {stage.name: stage.after for stage in stages}
    ends_s: dict[str, float] = {}
    for name in in_order(after):
        ends_s[name] = max((ends_s[before] for before in after[name]), default=0.0) + chosen[name].latency_s
    return max(ends_s.values()), sum(choice.cost for choice in chosen.values())


def brute_force(stages: list[StageChoices]) -> list[tuple[float, float]]:
    names = [stage.name for stage in stages]
    points = {
        evaluate(stages, dict(zip(names, chosen, strict=True)))
        for chosen in product(*(stage.choices for stage in stages))
    }
    return sorted(
        point
        for point in points
        if not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
    )


@given(graphs())
def test_the_frontier_equals_that_of_all_placements(stages: list[StageChoices]) -> None:
    placements = Placements(stages)
    assert placements.exact
    assert placements.points() == brute_force(stages)


@given(graphs())
def test_each_placement_has_the_latency_and_cost_it_claims(stages: list[StageChoices]) -> None:
    for placement in Placements(stages).candidates(None, None, limit=100):
        chosen = {
            stage.name: next(choice for choice in stage.choices if choice.kind == placement.kinds[stage.name])
            for stage in stages
        }
        assert evaluate(stages, chosen) == (placement.latency_s, placement.cost)


@given(graphs(), numbers, numbers)
def test_a_refused_objective_gets_an_offer_that_is_taken(
    stages: list[StageChoices], latency_s: float, cost: float
) -> None:
    placements = Placements(stages)
    offer = placements.offer(latency_s, cost)
    assert not placements.never(offer.deadline_s, offer.cost)
    within = [point for point in brute_force(stages) if point[0] <= latency_s and point[1] <= cost]
    assert placements.never(latency_s, cost) == (not within)
    if within:
        assert offer == Offer(latency_s, cost), "what is possible is offered as it was asked"
        assert placements.candidates(latency_s, cost)[0].cost == min(point[1] for point in within)
