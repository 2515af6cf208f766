"""One head of attention as a kernel graph, built in Python: scores, a softmax over each row, and the weighted values.

aliquot deploy examples/kernels/attention.py
python examples/kernels/attention.py
"""

import numpy as np

import aliquot
from aliquot.kernels import f4, i4, local, out

TOKENS, WIDTH, GROUP = 64, 32, 16
SOURCE = """
__kernel void project(__global const float *x, __global const float *w, __global float *y, int width) {
    int row = get_global_id(0), column = get_global_id(1);
    float sum = 0;
    for (int k = 0; k < width; k++) sum += x[row * width + k] * w[k * width + column];
    y[row * width + column] = sum;
}
__kernel void scores(__global const float *q, __global const float *k, __global float *s, int width, float scale) {
    int row = get_global_id(0), column = get_global_id(1);
    float sum = 0;
    for (int i = 0; i < width; i++) sum += q[row * width + i] * k[column * width + i];
    s[row * get_global_size(1) + column] = sum * scale;
}
__kernel void softmax(__global const float *s, __global float *p, __local float *part) {
    int row = get_group_id(0), column = get_local_id(0), width = get_local_size(0);
    float mine = s[row * width + column], most = -INFINITY, sum = 0;
    part[column] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < width; i++) most = fmax(most, part[i]);
    for (int i = 0; i < width; i++) sum += exp(part[i] - most);
    p[row * width + column] = exp(mine - most) / sum;
}
__kernel void weigh(__global const float *p, __global const float *v, __global float *y, int tokens) {
    int row = get_global_id(0), column = get_global_id(1), width = get_global_size(1);
    float sum = 0;
    for (int i = 0; i < tokens; i++) sum += p[row * tokens + i] * v[i * width + column];
    y[row * width + column] = sum;
}
"""
app = aliquot.App("kernels")
rng = np.random.default_rng(4)
WEIGHTS = {name: rng.standard_normal((WIDTH, WIDTH)).astype("f4") / WIDTH**0.5 for name in ("query", "key", "value")}


def build():
    graph = app.kernel_graph("attention")
    x = graph.input("x", "f4", (TOKENS, WIDTH))
    y = graph.output("y", "f4", (TOKENS, WIDTH))
    program = graph.program(SOURCE)
    square, wide = (GROUP, GROUP), (TOKENS // GROUP, WIDTH // GROUP)
    projected = {}
    for name, weights in WEIGHTS.items():
        projected[name] = graph.temporary(name, "f4", (TOKENS, WIDTH))
        constant = graph.const(f"{name}-weights", weights)
        graph.launch(program["project"], wide, square, x, constant, out(projected[name]), i4(WIDTH))
    scores = graph.temporary("scores", "f4", (TOKENS, TOKENS))
    parts = graph.temporary("parts", "f4", (TOKENS, TOKENS))
    tokens = (TOKENS // GROUP, TOKENS // GROUP)
    query, key, value = projected.values()
    graph.launch(program["scores"], tokens, square, query, key, out(scores), i4(WIDTH), f4(WIDTH**-0.5))
    graph.launch(program["softmax"], TOKENS, TOKENS, scores, out(parts), local(4 * TOKENS))
    graph.launch(program["weigh"], wide, square, parts, value, out(y), i4(TOKENS))
    return graph


attention = build()


def attention_with_numpy(x):
    query, key, value = (x @ weights for weights in WEIGHTS.values())
    scores = query @ key.T / WIDTH**0.5
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) @ value


if __name__ == "__main__":
    tokens = rng.standard_normal((TOKENS, WIDTH)).astype("f4")
    for where, found in (("here", attention(x=tokens)), ("on the platform", attention.remote(x=tokens))):
        print(f"{where}: equals NumPy: {np.allclose(found['y'], attention_with_numpy(tokens), atol=1e-5)}")
