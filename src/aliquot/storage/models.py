"""The state of the models as the agent reports it: all versions, the serving one, and the last training."""

from msgspec import Struct

from aliquot.learn.progress import TrainingState
from aliquot.learn.registry import Manifest, ServingState


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
