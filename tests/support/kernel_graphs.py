"""Kernel graphs that tests read, check and run."""

import hashlib
import json
from itertools import pairwise

import numpy as np

from aliquot.kernels.reading import read_graph

GEMM = """
__kernel void gemm(__global const float *x, __global const float *w, __global float *y, __constant int *size) {
    int row = get_global_id(0), column = get_global_id(1), n = size[0];
    float sum = 0;
    for (int k = 0; k < n; k++) sum += x[row * n + k] * w[k * n + column];
    y[row * n + column] = sum;
}
"""


def digest_of(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def gemm_chain(size=1024, links=4, *, equal_sizes=False):
    """Return the document of a chain of products and its constants. Each product also takes a constant of 32 bytes."""
    rng = np.random.default_rng(7)
    weights = [rng.standard_normal((size, size), np.float32) for _ in range(links)]
    sizes = [np.array([size, *[0 if equal_sizes else link] * 7], np.int32) for link in range(links)]
    matrix = {"dtype": "f4", "shape": [size, size]}
    steps = ["x", *[f"t{link}" for link in range(1, links)], "y"]
    buffers = {"x": {"kind": "input", **matrix}, "y": {"kind": "output", **matrix}}
    buffers |= {name: {"kind": "temporary", **matrix} for name in steps[1:-1]}
    for link in range(links):
        buffers[f"w{link}"] = {"kind": "const", "sha256": digest_of(weights[link]), **matrix}
        buffers[f"n{link}"] = {"kind": "const", "sha256": digest_of(sizes[link]), "dtype": "i4", "shape": [8]}
    block = 16 if size % 16 == 0 else 1
    kernels = [
        {
            "program": "p",
            "entry": "gemm",
            "grid": [size // block, size // block],
            "block": [block, block],
            "arguments": [{"in": read}, {"in": f"w{link}"}, {"out": written}, {"in": f"n{link}"}],
        }
        for link, (read, written) in enumerate(pairwise(steps))
    ]
    document = {"form": "opencl", "programs": {"p": {"source": GEMM}}, "buffers": buffers, "kernels": kernels}
    return document, {digest_of(array): array for array in (*weights, *sizes)}


def graph_of(document):
    return read_graph(json.dumps(document))
