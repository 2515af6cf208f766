"""A function that trains a network with one hidden layer on generated digits of MNIST's size, and times it."""

import os
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, for the bare run and the slice alike

import numpy as np  # imported after the variable is set, which it reads

PIXELS, HIDDEN, DIGITS, IMAGES, BATCH = 784, 128, 10, 8192, 128
RATE = 0.1
_random = np.random.default_rng(7)
# A digit is a pattern with noise, which can be learned.
PATTERNS = _random.random((DIGITS, PIXELS), dtype=np.float32)
LABELS = _random.integers(0, DIGITS, IMAGES)
PICTURES = PATTERNS[LABELS] + _random.standard_normal((IMAGES, PIXELS), dtype=np.float32)
WANTED = np.eye(DIGITS, dtype=np.float32)[LABELS]


def main(args: dict[str, Any]) -> dict[str, Any]:
    """Train for `steps` batches. Every call computes the same numbers."""
    began, began_cpu = time.perf_counter(), time.process_time()
    random = np.random.default_rng(1)
    first = random.standard_normal((PIXELS, HIDDEN), dtype=np.float32) * np.float32(PIXELS**-0.5)
    second = random.standard_normal((HIDDEN, DIGITS), dtype=np.float32) * np.float32(HIDDEN**-0.5)
    for step in range(args["steps"]):
        rows = slice(step * BATCH % IMAGES, step * BATCH % IMAGES + BATCH)
        pictures, wanted = PICTURES[rows], WANTED[rows]
        hidden = np.maximum(pictures @ first, 0)
        error = _softmax(hidden @ second) - wanted
        back = (error @ second.T) * (hidden > 0)
        second -= np.float32(RATE / BATCH) * (hidden.T @ error)
        first -= np.float32(RATE / BATCH) * (pictures.T @ back)
    right = (np.argmax(np.maximum(PICTURES @ first, 0) @ second, axis=1) == LABELS).mean()
    cpu_s = time.process_time() - began_cpu
    return {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_s, "right": float(right)}


def _softmax(scores: Any) -> Any:  # noqa: ANN401 - arrays
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
