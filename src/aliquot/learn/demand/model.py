"""A model of demand: settings for the choice of candidates, and trained networks beside them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class ChoiceSettings(Struct, frozen=True):
    """Settings of the choice of a candidate for each series. The field names are a format on disk."""

    memory: float = 0.005  # by which losses are smoothed
    blend_power: float = 6.0  # of the inverse loss, by which candidates are weighted
    worth: float = 0.98  # a candidate must have at most this part of the loss to replace another


class DemandNetwork(Protocol):
    """A trained network. It forecasts from a window of a series."""

    @property
    def window(self) -> int:
        """Return the number of values that it takes."""
        ...

    def forecast(self, values: Sequence[float]) -> Mapping[int, float]:
        """Return the expected value by horizon, from the last values, the oldest first."""
        ...


class DemandModel(Struct, frozen=True):
    """The settings and the networks that serve."""

    choice: ChoiceSettings = ChoiceSettings()
    networks: Mapping[str, DemandNetwork] = {}
    only: str = ""  # the candidate that serves every series; empty: each chooses its own
