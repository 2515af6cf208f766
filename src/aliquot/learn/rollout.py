"""The likely set: which files will be opened in the rest of a session, by chains of next steps and by what is later.

A chain follows the most likely next steps and those after them; a file's probability is that of all chains on which it
comes. What is cut off is lost, so a chain says too little rather than too much.
"""

from collections.abc import Callable
from typing import NamedTuple

from aliquot.learn.later import LaterPredictor
from aliquot.learn.predictor import Guess, Predictor
from aliquot.learn.steps import WINDOW, AccessStep, History

MAX_DEPTH = 16  # steps that a chain looks ahead
MAX_CHAINS = 6  # that are followed at once
_MAX_BRANCHES = 4  # next steps that are tried of each
_MIN_CHAIN_PROBABILITY = 0.02  # chains less likely than this end
_RANK_DECIMALS = 1  # decimals that make a difference to which is fetched first
MIN_PROBABILITY = 0.05  # a file less likely is not told


class _Chain(NamedTuple):
    probability: float
    history: tuple[AccessStep, ...]
    files: frozenset[str]  # that came on it


def chain(
    predictor: Predictor, history: History, describe: Callable[[str], AccessStep], depth: int = MAX_DEPTH
) -> dict[str, float]:
    """For each file the probability that it comes within the next `depth` steps; the sooner ones first."""
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
                step = describe(file)
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
    outlook: LaterPredictor | None,
    history: History,
    describe: Callable[[str], AccessStep],
    most: int = 64,
) -> list[Guess]:
    """The most likely first, of equally likely ones the sooner.

    What both ways name has the better of the two: either alone says too little.
    """
    likely = chain(predictor, history, describe)
    gaps: dict[str, float] = {file: gap for gap, file in enumerate(likely)}
    if outlook is not None:
        for file, chance, gap in outlook.later(history):
            likely[file] = max(chance, likely.get(file, 0.0))
            gaps[file] = gap
    best = sorted(likely.items(), key=lambda pair: (-round(pair[1], _RANK_DECIMALS), gaps[pair[0]], pair[0]))
    return [Guess(file, min(1.0, chance)) for file, chance in best[:most] if chance >= MIN_PROBABILITY]
