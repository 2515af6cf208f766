"""The graphs that the benchmark runs, as documents with the bytes of their constants."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Document = dict[str, Any]
Blobs = dict[str, bytes]

GEMM = """
__kernel void gemm(__global const float *x, __global const float8 *w, __global float8 *y, __constant int *size) {
    int columns = get_global_id(0), row = get_global_id(1), n = size[0];
    float8 sum = 0;
    for (int k = 0; k < n; k++) sum += x[row * n + k] * w[k * (n / 8) + columns];
    y[row * (n / 8) + columns] = sum;
}
"""
ADD = "__kernel void add(__global const float *x, __global float *y) { int i = get_global_id(0); y[i] = x[i] + 1; }"
WORK = """
__kernel void work(__global const float *w, __global float *y, int rounds, int size) {
    float sum = 0;
    for (int i = 0; i < rounds; i++) sum = sum * 0.5f + w[((uint)i * 64u) % (uint)size];
    y[get_global_id(0)] = sum;
}
"""
GROUP, WIDTH = 16, 8  # work-items of a group in each direction, and the columns of one of them


def gemm_chain(size: int, links: int = 4, *, seed: int = 7, equal_sizes: bool = False) -> tuple[Document, Blobs]:
    """Return a chain of products. Each takes a weight and a constant of 32 bytes that begins with the size."""
    random = np.random.default_rng(seed)
    matrix = {"dtype": "f4", "shape": [size, size]}
    steps = ["x", *(f"t{link}" for link in range(1, links)), "y"]
    buffers: dict[str, Any] = {"x": {"kind": "input", **matrix}, "y": {"kind": "output", **matrix}}
    buffers |= {name: {"kind": "temporary", **matrix} for name in steps[1:-1]}
    blobs: Blobs = {}
    for link in range(links):
        weight = (random.standard_normal((size, size)) / size**0.5).astype("f4")
        sizes = np.array([size, *[0 if equal_sizes else link] * 7], np.int32)
        for name, array, kind in ((f"w{link}", weight, matrix), (f"n{link}", sizes, {"dtype": "i4", "shape": [8]})):
            buffers[name] = {"kind": "const", "sha256": _keep(blobs, array.tobytes()), **kind}
    kernels = [
        {
            "program": "p",
            "entry": "gemm",
            "grid": [size // WIDTH // GROUP, size // GROUP],
            "block": [GROUP, GROUP],
            "arguments": [{"in": read}, {"in": f"w{link}"}, {"out": written}, {"in": f"n{link}"}],
        }
        for link, (read, written) in enumerate(pairwise(steps))
    ]
    return {"form": "opencl", "programs": {"p": {"source": GEMM}}, "buffers": buffers, "kernels": kernels}, blobs


def addition(count: int = 1024) -> Document:
    """Return a graph that adds 1 to each of some numbers."""
    array = {"dtype": "f4", "shape": [count]}
    return {
        "form": "opencl",
        "programs": {"p": {"source": ADD}},
        "buffers": {"x": {"kind": "input", **array}, "y": {"kind": "output", **array}},
        "kernels": [_launch("add", [count // 64], [64], [{"in": "x"}, {"out": "y"}])],
    }


def worker(weight_bytes: int, rounds: int, client: int) -> tuple[Document, Blobs]:
    """Return the graph of a client: its own weights, and so many rounds of work with them."""
    size = weight_bytes // 4
    blobs: Blobs = {}
    weights = np.full(size, client, np.float32)
    buffers = {
        "w": {"kind": "const", "sha256": _keep(blobs, weights.tobytes()), "dtype": "f4", "shape": [size]},
        "y": {"kind": "output", "dtype": "f4", "shape": [16]},
    }
    arguments = [{"in": "w"}, {"out": "y"}, {"i4": rounds}, {"i4": size}]
    return {
        "form": "opencl",
        "programs": {"p": {"source": WORK}},
        "buffers": buffers,
        "kernels": [_launch("work", [1], [16], arguments)],
    }, blobs


def _launch(entry: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[object]) -> Document:
    return {"program": "p", "entry": entry, "grid": list(grid), "block": list(block), "arguments": list(arguments)}


def _keep(blobs: Blobs, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return digest
