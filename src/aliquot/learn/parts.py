"""A version's files, and the predictors that are made of them: one table, by name."""

from collections.abc import Callable, Mapping

import msgspec

from aliquot.learn.blend import Blend
from aliquot.learn.lstm import Lstm, LstmError
from aliquot.learn.markov import Markov, Popular
from aliquot.learn.model import Model
from aliquot.learn.predictor import Nothing, Predictor
from aliquot.learn.reach import Outlook, Reach
from aliquot.learn.registry import BrokenVersionError, Manifest
from aliquot.learn.steps import OPEN, Step
from aliquot.learn.tables import Tables
from aliquot.learn.vocabulary import Vocabulary

TABLES, REACH, NETWORK, VOCABULARY = "tables.msgpack", "reach.msgpack", "lstm.onnx", "vocabulary.msgpack"


class Parts:
    """The files of a version, decoded when a predictor needs them."""

    def __init__(self, files: Mapping[str, bytes], weights: Mapping[str, float]) -> None:
        self._files = files
        self._weights = weights
        self.tables = Tables.from_bytes(files[TABLES])
        self._steps = {step.file: step for step in self.tables.steps}

    def predictor(self, name: str) -> Predictor:
        """Raises `LstmError` where the network cannot be run."""
        return PREDICTORS[name](self)

    def lstm(self) -> Lstm:
        if NETWORK not in self._files:
            raise LstmError("there is no network in this version")
        return Lstm(self._files[NETWORK], Vocabulary(msgspec.msgpack.decode(self._files[VOCABULARY], type=list[Step])))

    def blend(self) -> Blend:
        return Blend([self.predictor(name) for name in self._weights], list(self._weights.values()))

    def model(self, name: str, manifest: Manifest) -> Model:
        """Raises `LstmError` where the network cannot be run, and `BrokenVersionError`."""
        try:
            reach = Reach.from_bytes(self._files[REACH])
            return Model(self.predictor(name), Outlook(reach), self.describe, manifest.calibration)
        except (KeyError, msgspec.DecodeError) as error:
            raise BrokenVersionError(f"version {manifest.version}: {error}") from error

    def describe(self, file: str) -> Step:
        return self._steps.get(file) or Step(file, 0, OPEN)


PREDICTORS: dict[str, Callable[[Parts], Predictor]] = {
    "none": lambda _: Nothing(),
    "popular": lambda parts: Popular(parts.tables),
    "markov1": lambda parts: Markov(parts.tables, 1),
    "markov2": lambda parts: Markov(parts.tables, 2),
    "lstm": Parts.lstm,
    "blend": Parts.blend,
}


def open_parts(manifest: Manifest, files: Mapping[str, bytes]) -> Parts:
    """Raises `BrokenVersionError`."""
    try:
        return Parts(files, manifest.weights)
    except (KeyError, msgspec.DecodeError) as error:
        raise BrokenVersionError(f"version {manifest.version}: {error}") from error
