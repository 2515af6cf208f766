"""The training of a model of demand as a description: stages, what each reads, and which comes next. No clock, no I/O.

A training runs the stages in order and keeps the result of each, so a killed one goes on with the first stage that has
none. The forecaster watches the version that serves, and what it finds begins the next training.
"""

from collections.abc import Collection

from msgspec import Struct


class Stage(Struct, frozen=True):
    """One stage of a training."""

    name: str
    reads: tuple[str, ...]  # earlier stages
    done: float  # part of a training that is done when it begins
    what: str  # it does, for people to read


STAGES = (
    Stage("collect", (), 0.0, "reading the profiles"),
    Stage("features", ("collect",), 0.05, "cutting windows of all series"),
    Stage("train", ("features",), 0.1, "training the networks"),
    Stage("evaluate", ("collect", "train"), 0.7, "forecasting what was held back, under several settings"),
    Stage("select", ("evaluate",), 0.85, "choosing the settings and what serves"),
    Stage("deploy", ("collect", "train", "evaluate", "select"), 0.9, "comparing with the version in use on newer rows"),
)


def next_stage(done: Collection[str]) -> Stage | None:
    """Return the first stage without a result, or None if all have one. Raises `ValueError` for a gap."""
    for place, stage in enumerate(STAGES):
        if stage.name not in done:
            later = [other.name for other in STAGES[place:] if other.name in done]
            if later:
                raise ValueError(f"{later[0]} has a result, and {stage.name}, which comes before it, has none")
            return stage
    return None
