"""The option `--forecasting` of the simulator."""

from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.learn.demand.versions import DemandCard, open_version
from aliquot.learn.registry import BrokenVersionError, ModelRegistry
from aliquot.sim.forecasting.clairvoyant import NAME as CLAIRVOYANT
from aliquot.sim.forecasting.forecaster import COUNTS, NONE, ForecastSettings


def parse_forecasting(text: str) -> ForecastSettings:
    """Return the forecaster that the option names. Raises `InputError`."""
    if text in {NONE, COUNTS, CLAIRVOYANT}:
        return ForecastSettings(text)
    folder = Path(text)
    if not (folder.is_dir() and folder.name.isdecimal()):
        raise InputError(
            f"--forecasting: '{text}' is neither {NONE}, {COUNTS}, {CLAIRVOYANT} nor the folder of a version, as "
            "aliquot model show --of demand prints it"
        )
    version = int(folder.name)
    try:
        registry = ModelRegistry(folder.parent, DemandCard)
        model = open_version(registry, version)
    except BrokenVersionError as error:
        raise InputError(f"--forecasting: {error}") from error
    return ForecastSettings(f"version {version}", model, registry.manifest(version).step_s)
