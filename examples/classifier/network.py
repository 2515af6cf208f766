"""A small network for small pictures, in numpy: trained by the example itself, in a second or two."""

from itertools import pairwise

import numpy as np

SIDE = 12
CLASSES = ("disc", "square", "cross", "stripes")
_HIDDEN = 48


def draw(kind: int, rng: np.random.Generator) -> np.ndarray:
    """One picture of that class, 12 by 12, at a random place, in a random brightness, with noise."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2 - rng.uniform(-1.5, 1.5, (2, 1, 1))
    radius = rng.uniform(2.5, 4)
    shape = (
        x**2 + y**2 < radius**2,
        np.maximum(abs(x), abs(y)) < radius,
        (np.minimum(abs(x), abs(y)) < 1) & (np.maximum(abs(x), abs(y)) < radius + 1),
        (y % 4 < 2) & (abs(x) < radius + 1),
    )[kind]
    picture = shape * rng.uniform(0.6, 1) + rng.normal(0, 0.08, (SIDE, SIDE))
    return picture.astype(np.float32)


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (count, 12, 12) and their classes."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(len(CLASSES), size=count)
    return np.stack([draw(kind, rng) for kind in kinds]), kinds


def train(seed: int = 0, steps: int = 1500) -> dict[str, np.ndarray]:
    """Two layers, by gradient descent with momentum."""
    rng = np.random.default_rng(seed)
    images, kinds = pictures(2000, seed)
    inputs, wanted = images.reshape(len(images), -1), np.eye(len(CLASSES), dtype=np.float32)[kinds]
    sizes = (SIDE * SIDE, _HIDDEN, len(CLASSES))
    layers = [
        array.astype(np.float32)
        for fan_in, fan_out in pairwise(sizes)
        for array in (rng.normal(0, fan_in**-0.5, (fan_in, fan_out)), np.zeros(fan_out))
    ]
    speeds = [np.zeros_like(array) for array in layers]
    for _ in range(steps):
        batch = rng.integers(len(inputs), size=64)
        for array, speed, slope in zip(layers, speeds, _slopes(layers, inputs[batch], wanted[batch]), strict=True):
            speed *= 0.9
            speed -= 0.05 * slope
            array += speed
    return dict(zip(("w1", "b1", "w2", "b2"), layers, strict=True))


def predict(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Probabilities (count, classes)."""
    inputs = images.reshape(len(images), -1)
    hidden = np.maximum(inputs @ weights["w1"] + weights["b1"], 0)
    return _softmax(hidden @ weights["w2"] + weights["b2"])


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _slopes(layers: list[np.ndarray], inputs: np.ndarray, wanted: np.ndarray) -> list[np.ndarray]:
    w1, b1, w2, b2 = layers
    hidden = np.maximum(inputs @ w1 + b1, 0)
    error = (_softmax(hidden @ w2 + b2) - wanted) / len(inputs)
    back = (error @ w2.T) * (hidden > 0)
    return [inputs.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
