"""A model that predicts the likely files of a session from a predictor, counts of later files and a calibration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aliquot.learn.calibration import Calibration, calibrate
from aliquot.learn.later import LaterPredictor
from aliquot.learn.predictor import Guess, Predictor
from aliquot.learn.rollout import MIN_PROBABILITY, roll_out
from aliquot.learn.steps import USER, AccessStep, History, Session, seen_until

MAX_LIKELY_FILES = 64  # in a prediction
_MAX_MOMENTS = 400  # moments of held-back sessions used for a calibration
_LOOK_AHEAD_STEPS = 256  # steps within which a likely file must be opened to count


@dataclass(frozen=True)
class PredictionModel:
    """A predictor with everything needed to predict the rest of a session."""

    predictor: Predictor
    later: LaterPredictor | None
    step_of: Callable[[str], AccessStep]
    calibration: Calibration = Calibration()  # noqa: RUF009 - frozen

    def likely(self, history: History, max_files: int = MAX_LIKELY_FILES) -> list[Guess]:
        """Return the files likely to be opened in the rest of the session, most likely first."""
        if self.predictor.name == "none":
            return []
        rolled_out = roll_out(self.predictor, self.later, self._known(history), self.step_of, max_files)
        calibrated_guesses = [Guess(file, self.calibration(probability)) for file, probability in rolled_out]
        return [guess for guess in calibrated_guesses if guess.probability >= MIN_PROBABILITY]

    def _known(self, history: History) -> History:
        """Remove the marks of unknown users, so that the counts of all users apply."""
        return [step for step in history if step.operation != USER or self.step_of(step.file).is_mark]


def evaluate_predictions(
    model: PredictionModel, sessions: Sequence[Session], max_moments: int = _MAX_MOMENTS
) -> list[tuple[float, bool]]:
    """Return the predicted probability of files, and whether they were opened, at moments spread over the sessions.

    Repeated predictions of the same session are left out. So are files that the session has opened before: they are
    cached, and say nothing about which file is worth fetching.
    """
    moments = [(number, position) for number, session in enumerate(sessions) for position in range(1, len(session))]
    every = max(1, len(moments) // max_moments)
    results: dict[tuple[int, str, float], tuple[float, bool]] = {}
    for number, position in moments[::every]:
        session = sessions[number]
        opened_before = {step.file for step in session[:position]}
        opened_later = {step.file for step in session[position : position + _LOOK_AHEAD_STEPS]}
        for file, probability in model.likely(seen_until(session, position)):
            if file not in opened_before:
                results.setdefault((number, file, round(probability, 1)), (probability, file in opened_later))
    return list(results.values())


def with_calibration(model: PredictionModel, held_back: Sequence[Session]) -> PredictionModel:
    """Return the model with a calibration from held-back sessions."""
    raw = PredictionModel(model.predictor, model.later, model.step_of)
    calibration = calibrate(evaluate_predictions(raw, held_back), len(held_back))
    return PredictionModel(model.predictor, model.later, model.step_of, calibration)
