"""An image pipeline as one kernel graph: grey, blurred, edges, threshold. Nothing travels between the steps.

python examples/kernels/image_pipeline.py
"""

import numpy as np

import aliquot
from aliquot.kernels import out

HEIGHT, WIDTH, GROUP = 64, 96, 16
SOURCE = """
float at(__global const float *image, int y, int x) {
    int height = get_global_size(0), width = get_global_size(1);
    return image[clamp(y, 0, height - 1) * width + clamp(x, 0, width - 1)];
}
__kernel void grey(__global const uchar *rgb, __global float *to) {
    int i = get_global_id(0) * get_global_size(1) + get_global_id(1);
    to[i] = 0.299f * rgb[3 * i] + 0.587f * rgb[3 * i + 1] + 0.114f * rgb[3 * i + 2];
}
__kernel void blur(__global const float *from, __global float *to) {
    int y = get_global_id(0), x = get_global_id(1);
    float sum = 0;
    for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) sum += at(from, y + dy, x + dx);
    to[y * get_global_size(1) + x] = sum / 9;
}
__kernel void edges(__global const float *from, __global float *to) {
    int y = get_global_id(0), x = get_global_id(1);
    float across = 0, down = 0;
    for (int d = -1; d <= 1; d++) {
        float weight = d ? 1 : 2;
        across += weight * (at(from, y + d, x + 1) - at(from, y + d, x - 1));
        down += weight * (at(from, y + 1, x + d) - at(from, y - 1, x + d));
    }
    to[y * get_global_size(1) + x] = sqrt(across * across + down * down);
}
__kernel void above(__global const float *from, __global uchar *to, float bound) {
    int i = get_global_id(0) * get_global_size(1) + get_global_id(1);
    to[i] = from[i] > bound ? 255 : 0;
}
"""
app = aliquot.App("kernels")
pipeline = app.kernel_graph("image-pipeline")
filters = pipeline.program(SOURCE)
picture = pipeline.input("picture", "u1", (HEIGHT, WIDTH, 3))
steps = [pipeline.temporary(name, "f4", (HEIGHT, WIDTH)) for name in ("grey", "blurred", "strength")]
drawn = pipeline.output("drawn", "u1", (HEIGHT, WIDTH))
bound = pipeline.literal("bound", "f4", default=64)
grid, block = (HEIGHT // GROUP, WIDTH // GROUP), (GROUP, GROUP)
pipeline.launch(filters["grey"], grid, block, picture, out(steps[0]))
pipeline.launch(filters["blur"], grid, block, steps[0], out(steps[1]))
pipeline.launch(filters["edges"], grid, block, steps[1], out(steps[2]))
pipeline.launch(filters["above"], grid, block, steps[2], out(drawn), bound)


def pipeline_with_numpy(given, bound=64):
    grey = given @ np.array([0.299, 0.587, 0.114])
    blurred = sum(_shifted(grey, dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) / 9
    weights = {-1: 1, 0: 2, 1: 1}
    across = sum(weight * (_shifted(blurred, d, 1) - _shifted(blurred, d, -1)) for d, weight in weights.items())
    down = sum(weight * (_shifted(blurred, 1, d) - _shifted(blurred, -1, d)) for d, weight in weights.items())
    return np.where(np.hypot(across, down) > bound, 255, 0).astype("u1")


def _shifted(image, dy, dx):
    """Return the image seen from one pixel aside, with its border repeated."""
    rows = np.clip(np.arange(HEIGHT) + dy, 0, HEIGHT - 1)
    columns = np.clip(np.arange(WIDTH) + dx, 0, WIDTH - 1)
    return image[rows[:, None], columns]


if __name__ == "__main__":
    image = np.zeros((HEIGHT, WIDTH, 3), "u1")
    image[16:48, 24:72] = 255
    same = (pipeline(picture=image)["drawn"] == pipeline_with_numpy(image)).mean()
    print(f"{same:.1%} of the pixels are those of NumPy")
