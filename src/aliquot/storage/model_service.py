"""Serve predictions from the current model version, replace it while it serves, and train new versions.

A version that cannot be read is never served. The version before it stays in use, or nothing is predicted.
"""

import threading
from pathlib import Path

import structlog
from msgspec.structs import replace

from aliquot.learn.lstm import LstmError
from aliquot.learn.model import PredictionModel
from aliquot.learn.parts import PREDICTORS, open_parts
from aliquot.learn.progress import TrainingState
from aliquot.learn.registry import BrokenVersionError, Manifest, ModelRegistry, ServingState
from aliquot.learn.settings import AUTO, LearnSettings
from aliquot.learn.trainer import Trainer
from aliquot.learn.version_choice import ModelError, VersionChoice
from aliquot.storage.log import AccessLog
from aliquot.storage.models import ModelsState, ModelVersion
from aliquot.storage.records import Likely
from aliquot.storage.training.steps import as_key, history_of

NOTHING = "none"
TRAINING = "aliquot.storage.training.process"  # the module of the training process
_log = structlog.get_logger(__name__)


class ModelService:
    """Answers predictions and the operator's requests about models. Thread-safe."""

    def __init__(self, directory: Path, log: AccessLog, settings: LearnSettings = LearnSettings()) -> None:  # noqa: B008 - frozen
        self.settings = settings
        self._log = log
        self._registry = ModelRegistry(directory, Manifest)
        self._lock = threading.Lock()  # held while a version is loaded
        self._serving: tuple[str, PredictionModel | None] = (NOTHING, None)
        self._loaded: ServingState | None = None
        self._error = ""
        self._trained_at = self._newest_count()
        self._choice = VersionChoice(self._registry, PREDICTORS, self._check)
        self._trainer = Trainer(TRAINING, log.path, directory, self._after_training)
        self._stop = threading.Event()
        self.reload()
        self._thread = threading.Thread(target=self._watch, name="aliquot-models", daemon=True)
        self._thread.start()

    # --- predictions ----------------------------------------------------------------------------------------

    def next_files(self, tenant: str, session: str, function: str | None, user: str = "") -> tuple[str, list[Likely]]:
        """Return the model's name and the likely files.

        `function` is the one just called, empty when a session begins, and None otherwise.
        """
        name, model = self._serving
        if model is None:
            return name, []
        recent = self._log.recent(tenant, session, function or "")
        guesses = model.likely(history_of(recent, tenant, function, user))
        return name, [
            Likely(*as_key(guess.file), model.step_of(guess.file).size, guess.probability) for guess in guesses
        ]

    # --- requests of the operator -----------------------------------------------------------------------------

    def state(self) -> ModelsState:
        versions = tuple(
            ModelVersion(manifest, self._registry.sizes(manifest.version)) for manifest in self._registry.versions()
        )
        return ModelsState(
            self._registry.serving(),
            self._serving[0],
            versions,
            self._trainer.last,
            self._log.stats().rows,
            self._error,
        )

    def train(self) -> ModelsState:
        """Start a training. Raises `ModelError` while another one runs."""
        self._log.flush()
        self._trained_at = self._log.added
        if not self._trainer.start(replace(self.settings, when_idle=False)):  # the operator waits for it
            raise ModelError("a training is already running; `aliquot model list` shows how far it is")
        return self.state()

    def use(self, version: int | None, predictor: str | None) -> ModelsState:
        """Choose the version that serves, its predictor, or both. Raises `ModelError`."""
        self._choice.use(version, predictor)
        self.reload()
        return self.state()

    def roll_back(self) -> ModelsState:
        """Serve the previous version again. Raises `ModelError`."""
        self._choice.roll_back()
        self.reload()
        return self.state()

    def close(self) -> None:
        self._stop.set()
        self._trainer.close()
        self._thread.join()

    # --- the serving version ----------------------------------------------------------------------------------

    def reload(self) -> None:
        """Load the version that the registry names, if it has changed."""
        with self._lock:
            served = self._registry.serving()
            if served == self._loaded:
                return
            self._loaded = served
            try:
                self._serving, self._error = self._load(served), ""
            except (BrokenVersionError, LstmError) as error:
                self._error = str(error)
                _log.error("the chosen model cannot be loaded; the previous one stays in use", error=self._error)

    def _load(self, served: ServingState) -> tuple[str, PredictionModel | None]:
        if not served.version:
            return NOTHING, None
        manifest = self._registry.manifest(served.version)
        chosen = served.predictor or ("" if self.settings.predictor == AUTO else self.settings.predictor)
        name = chosen or manifest.winner
        parts = open_parts(manifest, self._registry.read(manifest))
        return f"{name} (version {manifest.version})", parts.model(name, manifest)

    def _check(self, served: ServingState) -> None:
        """Raise `BrokenVersionError` if a version cannot serve."""
        try:
            self._load(served)
        except LstmError as error:
            raise BrokenVersionError(str(error)) from error

    # --- automatic training -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.wait(self.settings.look_every_s):
            self.reload()
            new = self._log.added - self._trained_at
            if new >= max(self.settings.new_accesses, self.settings.new_share * self._log.stats().rows):
                self._trained_at = self._log.added
                self._trainer.start(self.settings)

    def _after_training(self, training: TrainingState) -> None:
        if training.error:
            _log.info("nothing was learned", why=training.error)
        self.reload()

    def _newest_count(self) -> int:
        """Return minus the number of accesses that the newest version has not seen, so that they count as new."""
        versions = self._registry.versions()
        seen = versions[-1].steps if versions else 0
        return min(0, seen - self._log.stats().rows)
