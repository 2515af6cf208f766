"""The predictor `lstm`: runs the trained network with onnxruntime on one thread."""

from collections.abc import Sequence
from typing import Any

from aliquot.learn.onnx_file import BEST, FEATURES, NUMBERS, PROBABILITIES
from aliquot.learn.predictor import MAX_GUESSES, Guess
from aliquot.learn.steps import WINDOW, History
from aliquot.learn.vocabulary import Vocabulary, features

_BATCH = 256


class LstmError(Exception):
    """The network cannot be run. The text gives the reason."""


class LstmPredictor:
    """Predicts the next step with the network of a version. Raises `LstmError` when it is made."""

    name = "lstm"

    def __init__(self, model: bytes, vocabulary: Vocabulary) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - from the extra `learn`, like onnxruntime
            import onnxruntime as ort  # noqa: PLC0415
        except ImportError as error:
            raise LstmError(
                f"the lstm needs onnxruntime, which is not installed ({error}): pip install 'aliquot[learn]'"
            ) from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session: Any = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common base class
            raise LstmError(f"onnxruntime cannot load the model: {error}") from error
        self._np: Any = np
        self.vocabulary = vocabulary

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return self._run([history[-WINDOW:]], top)[0] if history else []

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        """Predict in batches of histories of equal length, because the network takes no padding."""
        found: list[list[Guess]] = [[] for _ in histories]
        by_length: dict[int, list[int]] = {}
        for index, history in enumerate(histories):
            by_length.setdefault(min(len(history), WINDOW), []).append(index)
        for length, places in by_length.items():
            for begin in range(0, len(places) if length else 0, _BATCH):
                batch = places[begin : begin + _BATCH]
                answers = self._run([histories[index][-WINDOW:] for index in batch], top)
                for index, guesses in zip(batch, answers, strict=True):
                    found[index] = guesses
        return found

    def _run(self, histories: Sequence[History], top: int) -> list[list[Guess]]:
        number = self.vocabulary.number
        given = {
            NUMBERS: self._np.array([[number(step.file) for step in history] for history in histories], dtype="int64"),
            FEATURES: self._np.array([[features(step) for step in history] for history in histories], dtype="float32"),
        }
        probabilities, best = self._session.run([PROBABILITIES, BEST], given)
        return [
            self._guesses(row, chances, top) for row, chances in zip(best.tolist(), probabilities.tolist(), strict=True)
        ]

    def _guesses(self, numbers: list[int], chances: list[float], top: int) -> list[Guess]:
        guesses = []
        for number, chance in zip(numbers, chances, strict=True):
            step = self.vocabulary.step(number)
            if step is not None:
                guesses.append(Guess(step.file, chance))
                if len(guesses) == top:
                    break
        return guesses
