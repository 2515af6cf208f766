"""What is told of models: the versions that there are, the one that serves, and where a training stands."""

from msgspec import Struct

from aliquot.learn.registry import EpochResult, Manifest, ServingState

BEST = 0  # instead of a version: the best there is, and whatever is better from then on


class TrainingState(Struct, frozen=True):
    """Where the last training stands, or how it ended."""

    running: bool
    what: str
    done: float  # 0 to 1
    began: int  # milliseconds of the epoch
    curve: tuple[EpochResult, ...] = ()
    version: int = 0  # that it made
    error: str = ""


class ModelVersion(Struct, frozen=True):
    manifest: Manifest
    sizes: dict[str, int]  # bytes by file


class ModelsState(Struct, frozen=True):
    serving: ServingState
    model: str  # what answers now, as predictions name it
    versions: tuple[ModelVersion, ...]
    training: TrainingState | None
    accesses: int  # in the log
    error: str = ""  # why what should serve does not
