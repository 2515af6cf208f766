"""Write the trained network as an ONNX file, node by node.

Its inputs are the numbers (batch, steps) and features (batch, steps, 4) of a history. Its outputs are the most likely
numbers and their probabilities. A shorter history has fewer steps.
"""

from pathlib import Path
from typing import Any

from aliquot.learn.predictor import MAX_GUESSES

NUMBERS, FEATURES, PROBABILITIES, BEST = "numbers", "features", "probabilities", "best"
_OPSET = 17
_LAYERS = ("first", "second")
_MORE = 4  # additional outputs, because the end and buckets may be among them


def write(arrays: dict[str, Any], path: Path) -> None:
    """Write a file from the weights by torch's names (`Network.arrays`)."""
    import numpy as np  # noqa: PLC0415 - from the extra `learn`, like onnx
    from onnx import TensorProto, checker, helper, numpy_helper, save  # noqa: PLC0415

    vocabulary, embedding = arrays["embedding.weight"].shape
    weights = {
        "embedding": arrays["embedding.weight"],
        "head": arrays["head.weight"].T.copy(),
        "bias": arrays["head.bias"],
        "direction": np.array([1], dtype=np.int64),
        "front": np.array([0], dtype=np.int64),
        "top": np.array([min(MAX_GUESSES + _MORE, vocabulary)], dtype=np.int64),
    }
    for layer in _LAYERS:
        weights |= _lstm_weights(np, arrays, layer)
    extra = arrays["first.weight_ih_l0"].shape[1] - embedding
    graph = helper.make_graph(
        _nodes(helper, {layer: arrays[f"{layer}.weight_hh_l0"].shape[1] for layer in _LAYERS}),
        "next-file",
        [
            helper.make_tensor_value_info(NUMBERS, TensorProto.INT64, ["batch", "steps"]),
            helper.make_tensor_value_info(FEATURES, TensorProto.FLOAT, ["batch", "steps", extra]),
        ],
        [
            helper.make_tensor_value_info(PROBABILITIES, TensorProto.FLOAT, ["batch", "top"]),
            helper.make_tensor_value_info(BEST, TensorProto.INT64, ["batch", "top"]),
        ],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    checker.check_model(model)
    save(model, str(path))


def _nodes(helper: Any, hidden: dict[str, int]) -> list[Any]:  # noqa: ANN401 - onnx's module
    """Return the nodes of the network. `hidden` has the width of each LSTM layer."""
    nodes = [
        helper.make_node("Gather", ["embedding", NUMBERS], ["embedded"]),
        helper.make_node("Concat", ["embedded", FEATURES], ["joined"], axis=-1),
        helper.make_node("Transpose", ["joined"], ["steps"], perm=[1, 0, 2]),
    ]
    inputs = "steps"
    for layer, width in hidden.items():
        outputs = [f"{layer}_all", f"{layer}_last"]
        weights = [f"{layer}_w", f"{layer}_r", f"{layer}_b"]
        nodes.append(helper.make_node("LSTM", [inputs, *weights], outputs, hidden_size=width))
        inputs = f"{layer}_flat"
        nodes.append(helper.make_node("Squeeze", [outputs[0], "direction"], [inputs]))
    return [
        *nodes,
        helper.make_node("Squeeze", ["second_last", "front"], ["last"]),
        helper.make_node("MatMul", ["last", "head"], ["raw"]),
        helper.make_node("Add", ["raw", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["all"], axis=-1),
        helper.make_node("TopK", ["all", "top"], [PROBABILITIES, BEST], axis=-1),
    ]


def _lstm_weights(np: Any, arrays: dict[str, Any], layer: str) -> dict[str, Any]:  # noqa: ANN401 - the module
    """Reorder the gates from torch (input, forget, cell, output) to ONNX (input, output, forget, cell)."""

    def reordered(name: str) -> Any:  # noqa: ANN401 - an array
        given, forget, cell, output = np.split(arrays[f"{layer}.{name}"], 4)
        return np.concatenate([given, output, forget, cell])[np.newaxis]

    bias = np.concatenate([reordered("bias_ih_l0"), reordered("bias_hh_l0")], axis=1)
    return {
        f"{layer}_w": reordered("weight_ih_l0"),
        f"{layer}_r": reordered("weight_hh_l0"),
        f"{layer}_b": bias,
    }


def quantize(path: Path, into: Path) -> None:
    """Write the network with 8-bit weights, a quarter of the size, for large vocabularies."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - from the extra `learn`

    quantize_dynamic(str(path), str(into), weight_type=QuantType.QInt8)
