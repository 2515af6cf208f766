"""Small neural networks that recognise noisy digits. They are made in a second, so no file is needed."""

from functools import cache

import numpy as np

CLASSES, PIXELS = 10, 64
NOISE = 1.1


@cache
def digits() -> np.ndarray:
    """Return ten pictures of 8 by 8 pixels, one for each class."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (CLASSES, PIXELS))


def samples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy pictures and their classes."""
    random = np.random.default_rng(seed)
    classes = random.integers(0, CLASSES, count)
    return digits()[classes] + NOISE * random.normal(size=(count, PIXELS)), classes


@cache
def network(width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two layers of a network: random features, and weights that were fitted to samples."""
    random = np.random.default_rng(seed)
    first = random.normal(size=(PIXELS, width)) / np.sqrt(PIXELS)
    pictures, classes = samples(4000, seed)
    hidden = np.maximum(pictures @ first, 0)
    wanted = np.eye(CLASSES)[classes]
    second = np.linalg.solve(hidden.T @ hidden + np.eye(width), hidden.T @ wanted)
    return first, second


def classify(pictures: np.ndarray, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each picture, and how far it is ahead of the second best."""
    first, second = network(width, seed)
    scores = np.maximum(pictures @ first, 0) @ second
    ordered = np.sort(scores, axis=1)
    return scores.argmax(axis=1), ordered[:, -1] - ordered[:, -2]
