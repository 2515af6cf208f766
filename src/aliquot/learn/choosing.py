"""Choose the predictor that serves: the least below the best on held-back sessions, and the simplest among equals.

Predictors are compared in two measures, top-1 and top-5. One that is best in the mean of both may be far below another
in one of them. So the choice is the predictor whose larger distance from the best is the smallest.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from aliquot.learn.blend import BlendPredictor, fit_weights
from aliquot.learn.predictor import Predictor
from aliquot.learn.scoring import HeldOutStep, Score, predictions, tally

SIMPLEST_FIRST = ("none", "popular", "markov1", "markov2", "lstm", "blend")
_MARGIN = 0.001  # required advantage of a more complex predictor


class PredictorChoice(Struct, frozen=True):
    """The scores of all predictors, and the winner."""

    winner: str
    scores: dict[str, Score]
    weights: dict[str, float]  # weights of the blend's parts; empty if there is no blend


def choose(singles: Mapping[str, Predictor], held_out: Sequence[HeldOutStep], marks: frozenset[str]) -> PredictorChoice:
    """Score all predictors and choose one. With a network a blend is always tried, whichever of its parts is better."""
    answers = {name: list(predictions(predictor, held_out)) for name, predictor in singles.items()}
    scores = {name: tally(answers[name], held_out, marks) for name in singles}
    weights: dict[str, float] = {}
    if "lstm" in singles:
        parts = {name: singles[name] for name in ("markov2", "lstm")}
        fitted = fit_weights([answers[name] for name in parts], held_out)
        weights = dict(zip(parts, fitted, strict=True))
        blend = BlendPredictor(list(parts.values()), fitted)
        mixed = [blend.mixed(together) for together in zip(*(answers[name] for name in parts), strict=True)]
        scores["blend"] = tally(mixed, held_out, marks)
    return PredictorChoice(best_of(scores), scores, weights)


def best_of(scores: Mapping[str, Score]) -> str:
    """Return the predictor that is the least below the best. A more complex one must be nearer to it by a margin."""
    top1 = max((score.top1 for score in scores.values()), default=0.0)
    top5 = max((score.top5 for score in scores.values()), default=0.0)
    below = {name: max(top1 - score.top1, top5 - score.top5) for name, score in scores.items()}
    winner = SIMPLEST_FIRST[0]
    for name in SIMPLEST_FIRST:
        if name in scores and (name == winner or below[name] < below[winner] - _MARGIN):
            winner = name
    return winner
