"""The files of a version, and the table of predictors that are made from them."""

from collections.abc import Callable, Mapping

import msgspec

from aliquot.learn.blend import BlendPredictor
from aliquot.learn.later import LaterPredictor, LaterTables
from aliquot.learn.lstm import LstmError, LstmPredictor
from aliquot.learn.markov import MarkovPredictor, PopularPredictor
from aliquot.learn.model import PredictionModel
from aliquot.learn.predictor import NullPredictor, Predictor
from aliquot.learn.registry import BrokenVersionError, Manifest
from aliquot.learn.steps import OPEN, AccessStep
from aliquot.learn.tables import Tables
from aliquot.learn.vocabulary import Vocabulary

# These names are a format on disk.
TABLES, LATER, NETWORK, VOCABULARY = "tables.msgpack", "reach.msgpack", "lstm.onnx", "vocabulary.msgpack"


class VersionParts:
    """The files of a version, each decoded when a predictor needs it."""

    def __init__(self, files: Mapping[str, bytes], weights: Mapping[str, float]) -> None:
        self._files = files
        self._weights = weights
        self.tables = Tables.from_bytes(files[TABLES])
        self._steps = {step.file: step for step in self.tables.steps}

    def predictor(self, name: str) -> Predictor:
        """Make a predictor. Raises `LstmError` if the network cannot be run."""
        return PREDICTORS[name](self)

    def lstm(self) -> LstmPredictor:
        if NETWORK not in self._files:
            raise LstmError("there is no network in this version")
        return LstmPredictor(
            self._files[NETWORK], Vocabulary(msgspec.msgpack.decode(self._files[VOCABULARY], type=list[AccessStep]))
        )

    def blend(self) -> BlendPredictor:
        return BlendPredictor([self.predictor(name) for name in self._weights], list(self._weights.values()))

    def model(self, name: str, manifest: Manifest) -> PredictionModel:
        """Make the model of a predictor. Raises `LstmError` and `BrokenVersionError`."""
        try:
            later = LaterTables.from_bytes(self._files[LATER])
            return PredictionModel(self.predictor(name), LaterPredictor(later), self.step_of, manifest.calibration)
        except (KeyError, msgspec.DecodeError) as error:
            raise BrokenVersionError(f"version {manifest.version}: {error}") from error

    def step_of(self, file: str) -> AccessStep:
        """Return the step of a file, of size 0 if the version does not know it."""
        return self._steps.get(file) or AccessStep(file, 0, OPEN)


PREDICTORS: dict[str, Callable[[VersionParts], Predictor]] = {
    "none": lambda _: NullPredictor(),
    "popular": lambda parts: PopularPredictor(parts.tables),
    "markov1": lambda parts: MarkovPredictor(parts.tables, 1),
    "markov2": lambda parts: MarkovPredictor(parts.tables, 2),
    "lstm": VersionParts.lstm,
    "blend": VersionParts.blend,
}


def open_parts(manifest: Manifest, files: Mapping[str, bytes]) -> VersionParts:
    """Decode the files of a version. Raises `BrokenVersionError`."""
    try:
        return VersionParts(files, manifest.weights)
    except (KeyError, msgspec.DecodeError) as error:
        raise BrokenVersionError(f"version {manifest.version}: {error}") from error
