"""Score predictors on held-back sessions: how often they are right, and whether their probabilities hold."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from aliquot.learn.predictor import MAX_GUESSES, Guess, Predictor
from aliquot.learn.steps import History, Session, seen_until

FEW = 5
THETA = 0.75  # a file with a higher probability is fetched
_BATCH = 2048


class Score(Struct, frozen=True):
    """The result of a predictor. Shares refer to all held-out steps. The field names are a format on disk."""

    places: int = 0  # number of held-out steps
    top1: float = 0.0
    top5: float = 0.0
    sure: int = 0  # best guesses with a probability above THETA
    right: float | None = None  # the share of them that was right; None if there were none

    @property
    def worth(self) -> float:
        """Return the mean of top-1 and top-5, by which versions are compared."""
        return (self.top1 + self.top5) / 2


class HeldOutStep(Struct, frozen=True, gc=False):
    """A step to be predicted: the history before it, and the file that was opened."""

    history: History
    file: str


def held_out_steps(sessions: Iterable[Session], max_steps: int | None = None) -> list[HeldOutStep]:
    """Return all opened files that have a history, or at most `max_steps` of them, spread evenly."""
    opens = [
        (session, number) for session in sessions for number in range(1, len(session)) if not session[number].is_mark
    ]
    every = 1 if max_steps is None else max(1, -(-len(opens) // max_steps))
    return [HeldOutStep(seen_until(session, number), session[number].file) for session, number in opens[::every]]


def predictions(predictor: Predictor, held_out: Sequence[HeldOutStep]) -> Iterator[list[Guess]]:
    """Yield the prediction before each step, computed in batches."""
    for begin in range(0, len(held_out), _BATCH):
        yield from predictor.predict_many([step.history for step in held_out[begin : begin + _BATCH]], MAX_GUESSES)


def score(predictor: Predictor, held_out: Sequence[HeldOutStep], marks: frozenset[str] = frozenset()) -> Score:
    """Score a predictor. Guesses in `marks` are not files and are skipped."""
    return tally(predictions(predictor, held_out), held_out, marks)


def tally(
    answers: Iterable[list[Guess]], held_out: Sequence[HeldOutStep], marks: frozenset[str] = frozenset()
) -> Score:
    """Compute the score of predictions that were made for the held-out steps, in order."""
    first = few = sure = right = 0
    for guesses, step in zip(answers, held_out, strict=True):
        best = [guess for guess in guesses if guess.file not in marks][:FEW]
        if best:
            hit = best[0].file == step.file
            first += hit
            few += any(guess.file == step.file for guess in best)
            if best[0].probability > THETA:
                sure += 1
                right += hit
    number = len(held_out)
    return Score(number, first / number, few / number, sure, right / sure if sure else None) if number else Score()
