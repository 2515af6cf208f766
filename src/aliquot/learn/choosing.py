"""Choose the predictor that serves: the best on held-back sessions, and the simplest among equals."""

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
    """Score all predictors and choose one. A blend is tried only if the network beats the Markov predictors."""
    answers = {name: list(predictions(predictor, held_out)) for name, predictor in singles.items()}
    scores = {name: tally(answers[name], held_out, marks) for name in singles}
    weights: dict[str, float] = {}
    if "lstm" in singles and scores["lstm"].worth > max(scores["markov1"].worth, scores["markov2"].worth):
        parts = {name: singles[name] for name in ("markov2", "lstm")}
        fitted = fit_weights([answers[name] for name in parts], held_out)
        weights = dict(zip(parts, fitted, strict=True))
        blend = BlendPredictor(list(parts.values()), fitted)
        mixed = [blend.mixed(together) for together in zip(*(answers[name] for name in parts), strict=True)]
        scores["blend"] = tally(mixed, held_out, marks)
    return PredictorChoice(best_of(scores), scores, weights)


def best_of(scores: Mapping[str, Score]) -> str:
    """Return the best predictor. A more complex one must be better by a margin."""
    winner = SIMPLEST_FIRST[0]
    for name in SIMPLEST_FIRST:
        if name in scores and (name == winner or scores[name].worth > scores[winner].worth + _MARGIN):
            winner = name
    return winner
