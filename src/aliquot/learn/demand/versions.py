"""Versions of the model of demand: a card with scores, the settings of the choice, and networks as ONNX files."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from aliquot.learn.demand.calls import HORIZONS
from aliquot.learn.demand.candidates import BLEND, CANDIDATES
from aliquot.learn.demand.model import ChoiceSettings, DemandModel
from aliquot.learn.demand.networks import NetworkError, OnnxNetwork
from aliquot.learn.registry import BrokenVersionError, EpochResult, ModelRegistry, VersionCard

CHOSEN = "chosen"  # each series chooses its own candidate
NETWORKS = ("gru", "lstm", "transformer")
FORECASTERS = (CHOSEN, *CANDIDATES, BLEND, *NETWORKS)  # that an operator may let serve
MODELS_FOLDER = Path("forecasting") / "models"  # in the data folder of a server


class DemandScore(Struct, frozen=True):
    """The result of one forecaster on held-back rows. The field names are a format on disk."""

    rows: int = 0  # values that were forecast
    loss: float = 0.0  # weighted quantile loss
    relative_error: float = 0.0  # absolute error of the middle, in parts of that of the last value
    coverage: float = 0.0  # part of the values in the interval, ties by draw
    width: float = 0.0  # of the interval, in parts of the mean
    event_rate: float = 0.0  # part of the values above the last one, so that more is needed than was held
    accuracy: float = 0.0  # of "the value will be above the last one"
    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


class ChanceScore(Struct, frozen=True):
    """The result of the chance of a call in a step on held-back steps. The field names are a format on disk."""

    steps: int = 0
    log_loss: float = 0.0
    event_rate: float = 0.0  # part of the steps with a call
    accuracy: float = 0.0  # of "a call comes", said from a chance of one half on
    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


class DemandCard(VersionCard, frozen=True, kw_only=True):
    """The description of a version of the model of demand."""

    scores: dict[str, DemandScore]  # by forecaster
    chance: ChanceScore = ChanceScore()
    choice: ChoiceSettings = ChoiceSettings()
    step_s: float = 60.0
    horizons: tuple[int, ...] = HORIZONS
    applications: int = 0
    rows: int = 0  # steps with calls that it has seen
    held_back: int = 0
    until_s: float = 0.0  # time of the newest row that it was made from; newer ones only gave its scores
    newest_s: float = 0.0
    reason: str = ""  # why it was trained
    curve: tuple[EpochResult, ...] = ()
    without: str = ""  # why it has no network; empty if it has some


def registry_of(data: Path) -> ModelRegistry[DemandCard]:
    """Return the registry in a server's data folder."""
    return ModelRegistry(data / MODELS_FOLDER, DemandCard)


def read_version(
    registry: ModelRegistry[DemandCard], version: int, forecaster: str = ""
) -> tuple[DemandCard, dict[str, bytes]]:
    """Return a version's card and files after checking them. Raises `BrokenVersionError`."""
    card = registry.manifest(version)
    name = forecaster or card.winner
    if name not in card.scores and name != CHOSEN:
        raise BrokenVersionError(f"version {version} has no {name}; it has {', '.join(card.scores)}")
    return card, registry.read(card)


def open_version(
    registry: ModelRegistry[DemandCard], version: int, forecaster: str = "", *, step_s: float | None = None
) -> DemandModel:
    """Return a version's settings and networks. `step_s` is the step of who uses it. Raises `BrokenVersionError`."""
    card, files = read_version(registry, version, forecaster)
    if card.horizons != HORIZONS or step_s not in {None, card.step_s}:
        raise BrokenVersionError(
            f"version {version} forecasts steps of {card.step_s:g} s, {card.horizons} of them ahead; here they are of "
            f"{card.step_s if step_s is None else step_s:g} s, {HORIZONS} ahead"
        )
    name = forecaster or card.winner
    try:
        networks = open_networks(files, card.horizons)
    except NetworkError as error:
        raise BrokenVersionError(f"version {version}: {error}") from error
    return DemandModel(card.choice, networks, "" if name == CHOSEN else name)


def open_networks(files: dict[str, bytes], horizons: Sequence[int]) -> dict[str, OnnxNetwork]:
    """Return the networks among a version's files. Raises `NetworkError`."""
    return {name: OnnxNetwork(files[file], horizons) for name in NETWORKS if (file := file_of(name)) in files}


def file_of(network: str) -> str:
    return f"{network}.onnx"
