"""How well a predictor does on sessions it has not seen: what it names, and whether its probabilities are true."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from aliquot.learn.predictor import MAX_GUESSES, Guess, Predictor
from aliquot.learn.steps import History, Session, seen_until

FEW = 5
THETA = 0.75  # from which on a file is fetched
_TOGETHER = 2048


class Score(Struct, frozen=True):
    """Shares of all places at which a file came next; `right` of those where the best guess was above theta."""

    places: int = 0
    top1: float = 0.0
    top5: float = 0.0
    sure: int = 0  # guesses above theta
    right: float | None = None  # the share of them that was right; nothing: there were none

    @property
    def worth(self) -> float:
        """By which the one that serves is chosen: the next file, and the next few, count the same."""
        return (self.top1 + self.top5) / 2


class HeldOutStep(Struct, frozen=True, gc=False):
    """A moment in a session: what was before, and the file that came."""

    history: History
    file: str


def held_out_steps(sessions: Iterable[Session], most: int | None = None) -> list[HeldOutStep]:
    """Every file that has something before it; of more than `most`, as many, spread evenly."""
    there = [
        (session, number) for session in sessions for number in range(1, len(session)) if not session[number].is_mark
    ]
    every = 1 if most is None else max(1, -(-len(there) // most))
    return [HeldOutStep(seen_until(session, number), session[number].file) for session, number in there[::every]]


def predictions(predictor: Predictor, asked: Sequence[HeldOutStep]) -> Iterator[list[Guess]]:
    for begin in range(0, len(asked), _TOGETHER):
        yield from predictor.predict_many([place.history for place in asked[begin : begin + _TOGETHER]], MAX_GUESSES)


def score(predictor: Predictor, asked: Sequence[HeldOutStep], marks: frozenset[str] = frozenset()) -> Score:
    """`marks` are no files: a guess that names one is passed over."""
    return tally(predictions(predictor, asked), asked, marks)


def tally(answers: Iterable[list[Guess]], asked: Sequence[HeldOutStep], marks: frozenset[str] = frozenset()) -> Score:
    first = few = sure = right = 0
    for guesses, place in zip(answers, asked, strict=True):
        best = [guess for guess in guesses if guess.file not in marks][:FEW]
        if best:
            hit = best[0].file == place.file
            first += hit
            few += any(guess.file == place.file for guess in best)
            if best[0].probability > THETA:
                sure += 1
                right += hit
    number = len(asked)
    return Score(number, first / number, few / number, sure, right / sure if sure else None) if number else Score()
