"""A model that serves: a predictor, what is opened later, and its calibration, asked for the likely set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aliquot.learn.calibration import Calibration, calibrate
from aliquot.learn.later import LaterPredictor
from aliquot.learn.predictor import Guess, Predictor
from aliquot.learn.rollout import MIN_PROBABILITY, roll_out
from aliquot.learn.steps import USER, AccessStep, History, Session, seen_until

MAX_LIKELY_FILES = 64  # files of a likely set
_MAX_MOMENTS = 400  # moments of held-back sessions that a calibration is made from
_LOOK_AHEAD_STEPS = 256  # steps within which a file of the likely set is to be opened


@dataclass(frozen=True)
class PredictionModel:
    predictor: Predictor
    outlook: LaterPredictor | None
    describe: Callable[[str], AccessStep]
    calibration: Calibration = Calibration()  # noqa: RUF009 - frozen

    def likely(self, history: History, most: int = MAX_LIKELY_FILES) -> list[Guess]:
        """Which files will be opened in the rest of the session, the most likely first."""
        if self.predictor.name == "none":
            return []
        told = roll_out(self.predictor, self.outlook, self._known(history), self.describe, most)
        right = [Guess(file, self.calibration(probability)) for file, probability in told]
        return [guess for guess in right if guess.probability >= MIN_PROBABILITY]

    def _known(self, history: History) -> History:
        """Of a user that was never seen there is what is known of anybody: its marks would stand before that."""
        return [step for step in history if step.operation != USER or self.describe(step.file).is_mark]


def tried_sets(
    model: PredictionModel, sessions: Sequence[Session], most: int = _MAX_MOMENTS
) -> list[tuple[float, bool]]:
    """For moments spread evenly over sessions: what was said of each file, and whether it was opened.

    What is said again in the same session is no further proof, and is left out. So is what the session has opened
    before: it is here, and whether it comes once more says nothing of whether a file is worth fetching.
    """
    moments = [(number, place) for number, session in enumerate(sessions) for place in range(1, len(session))]
    every = max(1, len(moments) // most)
    said: dict[tuple[int, str, float], tuple[float, bool]] = {}
    for number, place in moments[::every]:
        session = sessions[number]
        here = {step.file for step in session[:place]}
        coming = {step.file for step in session[place : place + _LOOK_AHEAD_STEPS]}
        for file, probability in model.likely(seen_until(session, place)):
            if file not in here:
                said.setdefault((number, file, round(probability, 1)), (probability, file in coming))
    return list(said.values())


def calibrated(model: PredictionModel, held_back: Sequence[Session]) -> PredictionModel:
    raw = PredictionModel(model.predictor, model.outlook, model.describe)
    return PredictionModel(model.predictor, model.outlook, model.describe, calibrate(tried_sets(raw, held_back)))
