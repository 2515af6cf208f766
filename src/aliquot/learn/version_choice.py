"""The operator's choice of the version that serves, for every kind of model."""

from collections.abc import Callable, Collection
from typing import Generic

from aliquot.core.errors import AliquotError
from aliquot.learn.registry import BrokenVersionError, CardT, ModelRegistry, ServingState
from aliquot.learn.settings import AUTO

BEST = 0  # instead of a version number: the best version, now and after later trainings


class ModelError(AliquotError):
    """A request about models cannot be performed; the text is for people."""


class VersionChoice(Generic[CardT]):
    """Chooses a version or a predictor, and goes back to the version before."""

    def __init__(
        self, registry: ModelRegistry[CardT], predictors: Collection[str], check: Callable[[ServingState], None]
    ) -> None:
        """`check` raises `BrokenVersionError` if a version cannot serve with the predictor."""
        self._registry = registry
        self._predictors = predictors
        self._check = check

    def use(self, version: int | None, predictor: str | None) -> None:
        """Choose the version that serves, its predictor, or both. `BEST`, or neither, chooses the best version.

        Raises `ModelError`.
        """
        if predictor is not None and predictor != AUTO and predictor not in self._predictors:
            raise ModelError(f"there is no predictor '{predictor}'; there are {', '.join(self._predictors)} and {AUTO}")
        if version == BEST or (version is None and predictor is None):
            self._registry.unpin()
            version = None
        if version is not None or predictor is not None:
            old = self._registry.serving()
            wanted = old.version if version is None else version
            name = old.predictor if predictor is None else predictor
            self._check_version(wanted, name)
            self._registry.serve(
                wanted, pinned=version is not None or old.pinned, predictor="" if name == AUTO else name
            )

    def roll_back(self) -> None:
        """Serve the previous version again. Raises `ModelError`."""
        try:
            self._registry.roll_back()
        except BrokenVersionError as error:
            raise ModelError(str(error)) from error

    def _check_version(self, version: int, predictor: str) -> None:
        numbers = [card.version for card in self._registry.versions()]
        if version not in numbers:
            known = ", ".join(map(str, numbers)) or "none yet: `aliquot model train` makes one"
            raise ModelError(f"there is no version {version}; there are {known}")
        try:
            self._check(ServingState(version, predictor="" if predictor == AUTO else predictor))
        except BrokenVersionError as error:
            raise ModelError(f"version {version} cannot serve: {error}") from error
