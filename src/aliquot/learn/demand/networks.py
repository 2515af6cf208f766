"""Trained networks as candidates: run with onnxruntime on one thread.

A network takes a window of a series, in asinh and in parts of the window's mean, and gives the value at each horizon in
the same units. So one network serves series of every size.
"""

from collections.abc import Mapping, Sequence
from math import asinh, sinh
from typing import Any

WINDOW = 32  # values
INPUT, OUTPUT = "window", "forecast"
MIN_SCALE = 1e-3
MAX_OUTPUT = 12.0  # in asinh, so that no forecast is infinite


class NetworkError(Exception):
    """The network cannot be run. The text gives the reason."""


def scale_of(values: Sequence[float]) -> float:
    """Return the unit of a window: its mean."""
    return max(MIN_SCALE, sum(values) / len(values))


def scaled(values: Sequence[float], scale: float) -> list[float]:
    """Return values as a network sees them."""
    return [asinh(value / scale) for value in values]


class OnnxNetwork:
    """A network from its ONNX file. Raises `NetworkError` when it is made."""

    window = WINDOW

    def __init__(self, model: bytes, horizons: Sequence[int]) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - from the extra `learn`, like onnxruntime
            import onnxruntime as ort  # noqa: PLC0415
        except ImportError as error:
            raise NetworkError(f"onnxruntime is not installed ({error}): pip install 'aliquot[learn]'") from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session: Any = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            shapes = [self._session.get_inputs()[0].shape[1:], self._session.get_outputs()[0].shape[1:]]
        except Exception as error:  # its errors have no common base class
            raise NetworkError(f"onnxruntime cannot load the network: {error}") from error
        if shapes != [[WINDOW], [len(horizons)]]:
            raise NetworkError(f"the network takes {shapes[0]} values for {shapes[1]} horizons, not these")
        self._np: Any = np
        self._horizons = tuple(horizons)

    def forecast(self, values: Sequence[float]) -> Mapping[int, float]:
        scale = scale_of(values)
        given = self._np.array([scaled(values, scale)], dtype="float32")
        outputs = self._session.run([OUTPUT], {INPUT: given})[0][0].tolist()
        return {
            steps: scale * sinh(min(MAX_OUTPUT, max(0.0, output)))
            for steps, output in zip(self._horizons, outputs, strict=True)
        }
