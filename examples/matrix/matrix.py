"""A matrix job on a quarter of a GPU. Run it with a platform up: `python matrix.py`."""

import asyncio

import numpy as np

import aliquot

app = aliquot.App("matrix")


@app.function(gpu=0.25, gpu_memory="512MiB", memory="512MiB", imports=["numpy"], timeout="60s")
def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply two matrices. Arrays are passed as they are, not as JSON."""
    return left @ right


@app.function(gpu=0.25, gpu_memory="512MiB", memory="512MiB", imports=["numpy"])
def trace(size: int, seed: int = 0) -> float:
    """Return the trace of the square of a random matrix. Arguments and result are JSON, for any OpenWhisk client."""
    matrix = np.random.default_rng(seed).standard_normal((size, size))
    return float(np.trace(matrix @ matrix))


async def call_concurrently(count: int) -> list[float]:
    """Make concurrent calls from an event loop."""
    return await asyncio.gather(*(trace.remote.aio(50, seed) for seed in range(count)))


def main() -> None:
    left, right = np.random.default_rng(1).standard_normal((2, 400, 400))
    product = multiply.remote(left, right)
    print("multiply: same result as a local call:", np.allclose(product, multiply(left, right)))

    handle = trace.spawn(300)
    print("spawn: activation id of", len(handle.id), "characters")
    print("spawn: same result as a local call:", np.isclose(handle.get(timeout=60), trace(300)))

    traces = list(trace.starmap((50, seed) for seed in range(8)))
    print("starmap: results in order:", traces == [trace(50, seed) for seed in range(8)])
    print("await: results in order:", asyncio.run(call_concurrently(8)) == traces)


if __name__ == "__main__":
    main()
