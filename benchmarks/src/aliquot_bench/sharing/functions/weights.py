"""An app whose functions hand weights to each other, between two sandboxes and inside one."""

import time
from typing import Any

import numpy as np

import aliquot

app = aliquot.App("weights")


@app.function(calls=True)
def give(size: int) -> dict[str, Any]:
    """Hand weights to another sandbox, and return the times and whether they arrived unchanged."""
    weights = np.random.default_rng(3).random(size // 4, dtype=np.float32)
    began = time.monotonic()
    taken_at, read_at, total = take.remote(weights)
    return {"give_s": taken_at - began, "take_s": read_at - taken_at, "whole": total == float(weights.sum())}


@app.function
def take(weights: "np.ndarray[Any, Any]") -> tuple[float, float, float]:
    taken_at = time.monotonic()
    total = float(weights.sum())
    return taken_at, time.monotonic(), total


@app.function(group="weights")
def hold(size: int) -> dict[str, Any]:
    """Hand weights to another function of the group, and return whether the same object comes back."""
    weights = np.random.default_rng(3).random(size // 4, dtype=np.float32)
    number, back = look.remote(weights)
    return {"same": back is weights and number == id(weights)}


@app.function(group="weights")
def look(weights: "np.ndarray[Any, Any]") -> tuple[int, Any]:
    return id(weights), weights
