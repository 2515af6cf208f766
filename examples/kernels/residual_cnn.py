"""A small residual network for images. The program makes its ONNX model itself, with weights from a seed.

python examples/kernels/residual_cnn.py net.onnx
"""

import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save, shape_inference

import aliquot
from aliquot import kernels

app = aliquot.App("kernels")
CHANNELS, SIDE, CLASSES = 8, 16, 10
SEED = 23


def weights():
    """Return the weights by name."""
    rng = np.random.default_rng(SEED)
    shapes = {"stem": (CHANNELS, 3, 3, 3), "dense": (CHANNELS, CLASSES)}
    for block in (1, 2):
        shapes |= {f"first{block}": (CHANNELS, CHANNELS, 3, 3), f"second{block}": (CHANNELS, CHANNELS, 3, 3)}
    return {name: (0.2 * rng.standard_normal(shape)).astype("f4") for name, shape in shapes.items()}


def make_model():
    """Return the model: a convolution, two residual blocks, the mean over the image, and a softmax over classes."""
    node, info = helper.make_node, helper.make_tensor_value_info
    same = {"pads": [1, 1, 1, 1]}
    nodes = [node("Conv", ["image", "stem"], ["stem_sum"], **same), node("Relu", ["stem_sum"], ["block0"])]
    for block in (1, 2):
        nodes += [
            node("Conv", [f"block{block - 1}", f"first{block}"], [f"sum{block}"], **same),
            node("Relu", [f"sum{block}"], [f"inner{block}"]),
            node("Conv", [f"inner{block}", f"second{block}"], [f"change{block}"], **same),
            node("Add", [f"block{block - 1}", f"change{block}"], [f"added{block}"]),
            node("Relu", [f"added{block}"], [f"block{block}"]),
        ]
    nodes += [
        node("ReduceMean", ["block2"], ["mean"], axes=[2, 3], keepdims=0),
        node("MatMul", ["mean", "dense"], ["scores"]),
        node("Softmax", ["scores"], ["classes"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "residual",
        [info("image", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [info("classes", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in weights().items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return shape_inference.infer_shapes(model, strict_mode=True)


def classes_with_numpy(images):
    """Return what the network computes, with NumPy alone."""
    known = weights()
    block = np.maximum(_convolved(images, known["stem"]), 0)
    for number in (1, 2):
        inner = np.maximum(_convolved(block, known[f"first{number}"]), 0)
        block = np.maximum(block + _convolved(inner, known[f"second{number}"]), 0)
    scores = block.mean(axis=(2, 3)) @ known["dense"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _convolved(images, kernels):
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )
    return np.einsum("bcyxij,kcij->bkyx", windows, kernels)


if __name__ == "__main__":
    save(make_model(), sys.argv[1])
    network = app.kernel_graph("residual-cnn", kernels.onnx(sys.argv[1], shapes={"image": (4, 3, SIDE, SIDE)}))
    images = np.random.default_rng(SEED).random((4, 3, SIDE, SIDE), np.float32)
    for where, found in (("here", network(image=images)), ("on the platform", network.remote(image=images))):
        print(f"{where}: equals NumPy: {np.allclose(found['classes'], classes_with_numpy(images), atol=1e-5)}")
