"""The versions of forecasts on a server: shown, trained, chosen and rolled back, and trained again when they drift."""

from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.structs import asdict

from aliquot.learn.demand.drift import DriftSettings, Watched
from aliquot.learn.demand.training import DemandLearnSettings
from aliquot.learn.demand.versions import CHOSEN, FORECASTERS, DemandCard, read_version, registry_of
from aliquot.learn.progress import TrainingState
from aliquot.learn.registry import BrokenVersionError, ServingState
from aliquot.learn.settings import LearnSettings
from aliquot.learn.trainer import Trainer
from aliquot.learn.version_choice import ModelError, VersionChoice
from aliquot.live.forecasting.messages import ForecasterReport, ForecasterState

TRAINING = "aliquot.live.forecasting.training"  # the module of the training process
WITHOUT = "no version"
log = structlog.get_logger("aliquot.forecasting")


class DemandVersion(Struct, frozen=True):
    """A stored version of forecasts: its card, its files and the folder that holds them."""

    manifest: DemandCard
    sizes: dict[str, int]  # bytes by file
    folder: str


class DemandModelsState(Struct, frozen=True):
    """All versions of forecasts, the serving one, and the last training."""

    serving: ServingState
    model: str  # name of the forecaster and the version that is chosen
    versions: tuple[DemandVersion, ...]
    training: TrainingState | None
    forecaster: int  # the version that the forecaster has loaded
    watched: Watched
    error: str = ""  # why the chosen version does not serve


class DemandModels:
    """Answers the operator's requests about forecasts. The forecaster's process loads what is chosen."""

    def __init__(self, data: Path, step_s: float, settings: LearnSettings) -> None:
        self.drift = DriftSettings(
            settings.drift_rows, settings.drift_windows, settings.drift_loss, settings.least_rows
        )
        self._settings = {**asdict(settings), "step_s": step_s}
        self._registry = registry_of(data)
        self._choice = VersionChoice(self._registry, FORECASTERS, self._check)
        self._trainer = Trainer(TRAINING, data, self._registry.directory, _log_end)
        self.told = ForecasterState()  # of the forecaster's last report

    def reported(self, report: ForecasterReport) -> None:
        """Take what the forecaster says, and begin a training if it gives a reason."""
        self.told = report.state
        if report.retrain and self._trainer.start(DemandLearnSettings(**self._settings | {"reason": report.retrain})):
            log.info("a training of forecasts begins", why=report.retrain)

    def state(self) -> DemandModelsState:
        """Return the state. It reads files, so call it in a thread, as the three requests below."""
        serving = self._registry.serving()
        cards = self._registry.versions()
        served = {card.version: card for card in cards}.get(serving.version)
        name = serving.predictor or (CHOSEN if served is None else served.winner)
        return DemandModelsState(
            serving,
            f"{name} (version {serving.version})" if serving.version else f"{name} ({WITHOUT})",
            tuple(
                DemandVersion(card, self._registry.sizes(card.version), str(self._registry.folder(card.version)))
                for card in cards
            ),
            self._trainer.last,
            self.told.version,
            self.told.watched,
            self.told.error,
        )

    def train(self) -> DemandModelsState:
        """Start a training. Raises `ModelError` while another one runs."""
        if not self._trainer.start(DemandLearnSettings(**self._settings | {"when_idle": False})):  # somebody waits
            raise ModelError("a training is already running; `aliquot model list --of demand` shows how far it is")
        return self.state()

    def use(self, version: int | None, forecaster: str | None) -> DemandModelsState:
        """Choose the version that serves, its forecaster, or both. Raises `ModelError`."""
        self._choice.use(version, forecaster)
        return self.state()

    def roll_back(self) -> DemandModelsState:
        """Serve the previous version again. Raises `ModelError`."""
        self._choice.roll_back()
        return self.state()

    def close(self) -> None:
        """Stop a running training."""
        self._trainer.close()

    def _check(self, served: ServingState) -> None:
        if not served.version:
            raise BrokenVersionError("there is no version yet")
        read_version(self._registry, served.version, served.predictor)


def _log_end(training: TrainingState) -> None:
    if training.error:
        log.info("forecasts were not trained", why=training.error)
