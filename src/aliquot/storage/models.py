"""The state of the models as the agent reports it: all versions, the serving one, and the last training."""

from msgspec import Struct

from aliquot.learn.registry import EpochResult, Manifest, ServingState

BEST = 0  # instead of a version number: the best version, now and after later trainings


class TrainingState(Struct, frozen=True):
    """The progress of the last training, or its result."""

    running: bool
    what: str
    done: float  # 0 to 1
    began: int  # milliseconds since the epoch
    curve: tuple[EpochResult, ...] = ()
    version: int = 0  # the version it made; 0 if none
    error: str = ""


class ModelVersion(Struct, frozen=True):
    """A stored model version: its manifest and its files."""

    manifest: Manifest
    sizes: dict[str, int]  # bytes by file


class ModelsState(Struct, frozen=True):
    """All model versions, the serving one, and the last training."""

    serving: ServingState
    model: str  # name of the predictor and version that answers now
    versions: tuple[ModelVersion, ...]
    training: TrainingState | None
    accesses: int  # number of accesses in the log
    error: str = ""  # why the chosen version does not serve
