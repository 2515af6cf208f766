"""A chain of matrix products whose weights stay on the device.

python examples/kernels/gemm_chain.py
"""

import numpy as np

import aliquot
from aliquot.kernels import i4, out

SIZE, LINKS, GROUP = 128, 4, 16
SOURCE = """
__kernel void gemm(__global const float *x, __global const float *w, __global float *y, int n) {
    int row = get_global_id(0), column = get_global_id(1);
    float sum = 0;
    for (int k = 0; k < n; k++) sum += x[row * n + k] * w[k * n + column];
    y[row * n + column] = sum;
}
"""
app = aliquot.App("kernels")
rng = np.random.default_rng(7)
WEIGHTS = [rng.standard_normal((SIZE, SIZE)).astype("f4") / SIZE**0.5 for _ in range(LINKS)]

chain = app.kernel_graph("gemm-chain")
gemm = chain.program(SOURCE)["gemm"]
values = [chain.input("x", "f4", (SIZE, SIZE))]
values += [chain.temporary(f"t{link}", "f4", (SIZE, SIZE)) for link in range(1, LINKS)]
values += [chain.output("y", "f4", (SIZE, SIZE))]
for link, weights in enumerate(WEIGHTS):
    constant = chain.const(f"w{link}", weights)
    groups = (SIZE // GROUP, SIZE // GROUP)
    chain.launch(gemm, groups, (GROUP, GROUP), values[link], constant, out(values[link + 1]), i4(SIZE))


def chain_with_numpy(x):
    for weights in WEIGHTS:
        x = x @ weights
    return x


if __name__ == "__main__":
    given = [rng.standard_normal((SIZE, SIZE)).astype("f4") for _ in range(4)]
    results = chain.map([{"x": x} for x in given])
    for x, found in zip(given, results, strict=True):
        print(f"differs from NumPy by at most {np.abs(found['y'] - chain_with_numpy(x)).max():.1e}")
