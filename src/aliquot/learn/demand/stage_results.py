"""The results of the stages of a training, as they are kept on disk, and the choice between settings."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from aliquot.learn.demand.evaluation import CallRow
from aliquot.learn.demand.features import TrainingWindows
from aliquot.learn.demand.model import ChoiceSettings
from aliquot.learn.demand.versions import CHOSEN, ChanceScore, DemandScore
from aliquot.learn.registry import EpochResult

CLEARLY = 0.98  # a single forecaster must have at most this part of the loss to serve all series
CHOICES = (ChoiceSettings(), ChoiceSettings(memory=0.02), ChoiceSettings(memory=0.02, blend_power=12.0))


class Collected(Struct, frozen=True):
    """The result of the stage `collect`: all rows in the order of time, and the borders between their parts."""

    rows: list[CallRow]
    select_s: float
    score_s: float


class Features(Struct, frozen=True):
    """The result of the stage `features`."""

    learned: TrainingWindows
    held_back: TrainingWindows


class Trained(Struct, frozen=True):
    """The result of the stage `train`: ONNX files, curves, or the reason why there are none."""

    files: dict[str, bytes] = {}
    curve: list[EpochResult] = []
    without: str = ""


class Evaluated(Struct, frozen=True):
    """The scores under each of `CHOICES`, on the rows that select and on the newest ones."""

    select: list[dict[str, DemandScore]]
    newest: list[dict[str, DemandScore]]
    chance: ChanceScore


class Selected(Struct, frozen=True):
    """The result of the stage `select`: the index of the settings, and what serves."""

    choice: int
    winner: str


def select(scores: Sequence[Mapping[str, DemandScore]]) -> Selected:
    """Return the settings with the least loss, and a single forecaster only if it is clearly better than choosing."""
    losses = [of_choice[CHOSEN].loss if CHOSEN in of_choice else 0.0 for of_choice in scores]
    choice = losses.index(min(losses))
    singles = {name: score.loss for name, score in scores[choice].items() if name != CHOSEN}
    best = min(singles, key=singles.__getitem__, default=CHOSEN)
    clearly = best != CHOSEN and singles[best] < CLEARLY * losses[choice]
    return Selected(choice, best if clearly else CHOSEN)
