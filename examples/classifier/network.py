"""A two-layer network for small images, in numpy. It trains in a second or two."""

from itertools import pairwise

import numpy as np

SIDE = 12
CLASSES = ("disc", "square", "cross", "stripes")
_HIDDEN = 48


def draw(kind: int, rng: np.random.Generator) -> np.ndarray:
    """Draw an image of the given class, 12 by 12 pixels, with random position, brightness and noise."""
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2 - rng.uniform(-1.5, 1.5, (2, 1, 1))
    radius = rng.uniform(2.5, 4)
    shape = (
        x**2 + y**2 < radius**2,
        np.maximum(abs(x), abs(y)) < radius,
        (np.minimum(abs(x), abs(y)) < 1) & (np.maximum(abs(x), abs(y)) < radius + 1),
        (y % 4 < 2) & (abs(x) < radius + 1),
    )[kind]
    image = shape * rng.uniform(0.6, 1) + rng.normal(0, 0.08, (SIDE, SIDE))
    return image.astype(np.float32)


def make_images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images of shape (count, 12, 12) and their classes."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(len(CLASSES), size=count)
    return np.stack([draw(kind, rng) for kind in kinds]), kinds


def train(seed: int = 0, steps: int = 1500) -> dict[str, np.ndarray]:
    """Train two layers by gradient descent with momentum."""
    rng = np.random.default_rng(seed)
    images, kinds = make_images(2000, seed)
    inputs, targets = images.reshape(len(images), -1), np.eye(len(CLASSES), dtype=np.float32)[kinds]
    sizes = (SIDE * SIDE, _HIDDEN, len(CLASSES))
    layers = [
        array.astype(np.float32)
        for fan_in, fan_out in pairwise(sizes)
        for array in (rng.normal(0, fan_in**-0.5, (fan_in, fan_out)), np.zeros(fan_out))
    ]
    velocities = [np.zeros_like(array) for array in layers]
    for _ in range(steps):
        batch = rng.integers(len(inputs), size=64)
        gradients = _gradients(layers, inputs[batch], targets[batch])
        for array, velocity, gradient in zip(layers, velocities, gradients, strict=True):
            velocity *= 0.9
            velocity -= 0.05 * gradient
            array += velocity
    return dict(zip(("w1", "b1", "w2", "b2"), layers, strict=True))


def predict(weights: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Return class probabilities of shape (count, classes)."""
    inputs = images.reshape(len(images), -1)
    hidden = np.maximum(inputs @ weights["w1"] + weights["b1"], 0)
    return _softmax(hidden @ weights["w2"] + weights["b2"])


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _gradients(layers: list[np.ndarray], inputs: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
    w1, b1, w2, b2 = layers
    hidden = np.maximum(inputs @ w1 + b1, 0)
    error = (_softmax(hidden @ w2 + b2) - targets) / len(inputs)
    back = (error @ w2.T) * (hidden > 0)
    return [inputs.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
