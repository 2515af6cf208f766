"""Predict the files of the rest of a session, by chains of next steps and by counts of later files.

A chain follows the most likely next steps. A file's probability is the sum over all chains that contain it. Unlikely
chains are cut off, so the probability is too low rather than too high.
"""

from collections.abc import Callable
from typing import NamedTuple

from aliquot.learn.later import LaterPredictor
from aliquot.learn.predictor import Guess, Predictor
from aliquot.learn.steps import WINDOW, AccessStep, History

MAX_DEPTH = 16  # steps of a chain
MAX_CHAINS = 6  # chains that are followed at once
_MAX_BRANCHES = 4  # next steps of each chain
_MIN_CHAIN_PROBABILITY = 0.02  # a less likely chain ends
_RANK_DECIMALS = 1  # probabilities equal to so many decimals are ordered by distance
MIN_PROBABILITY = 0.05  # less likely files are not predicted


class _Chain(NamedTuple):
    probability: float
    history: tuple[AccessStep, ...]
    files: frozenset[str]  # in the chain


def chain(
    predictor: Predictor, history: History, step_of: Callable[[str], AccessStep], depth: int = MAX_DEPTH
) -> dict[str, float]:
    """Return the probability of each file to be opened within `depth` steps, the sooner ones first."""
    likely: dict[str, float] = {}
    chains = [_Chain(1.0, tuple(history[-WINDOW:]), frozenset())]
    for _ in range(depth):
        answers = predictor.predict_many([one.history for one in chains], _MAX_BRANCHES)
        longer: list[_Chain] = []
        for one, guesses in zip(chains, answers, strict=True):
            for file, chance in guesses:
                probability = one.probability * chance
                if probability < _MIN_CHAIN_PROBABILITY:
                    break
                step = step_of(file)
                if not step.is_mark and file not in one.files:
                    likely[file] = likely.get(file, 0.0) + probability
                longer.append(_Chain(probability, (*one.history, step)[-WINDOW:], one.files | {file}))
        if not longer:
            break
        longer.sort(key=lambda one: -one.probability)
        chains = longer[:MAX_CHAINS]
    return likely


def roll_out(
    predictor: Predictor,
    later: LaterPredictor | None,
    history: History,
    step_of: Callable[[str], AccessStep],
    max_files: int = 64,
) -> list[Guess]:
    """Return the likely files, most likely first and then by distance.

    A file that both ways predict gets the higher probability, because either alone is too low.
    """
    likely = chain(predictor, history, step_of)
    gaps: dict[str, float] = {file: gap for gap, file in enumerate(likely)}
    if later is not None:
        for file, chance, gap in later.predict_later(history):
            likely[file] = max(chance, likely.get(file, 0.0))
            gaps[file] = gap
    best = sorted(likely.items(), key=lambda pair: (-round(pair[1], _RANK_DECIMALS), gaps[pair[0]], pair[0]))
    return [Guess(file, min(1.0, chance)) for file, chance in best[:max_files] if chance >= MIN_PROBABILITY]
