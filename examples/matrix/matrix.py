"""A matrix job on a quarter of a GPU. Run it with a platform up: `python matrix.py`."""

import asyncio

import numpy as np

import aliquot

app = aliquot.App("matrix")


@app.function(gpu=0.25, gpu_memory="512MiB", memory="512MiB", imports=["numpy"], timeout="60s")
def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Arrays come and go as they are; nothing becomes JSON on the way."""
    return left @ right


@app.function(gpu=0.25, gpu_memory="512MiB", memory="512MiB", imports=["numpy"], latency_slo="200ms")
def trace(size: int, seed: int = 0) -> float:
    """The trace of a random matrix's square: small in, small out, so that any OpenWhisk client can call it, too."""
    matrix = np.random.default_rng(seed).standard_normal((size, size))
    return float(np.trace(matrix @ matrix))


async def at_once(count: int) -> list[float]:
    """The same calls from an event loop."""
    return await asyncio.gather(*(trace.remote.aio(50, seed) for seed in range(count)))


def main() -> None:
    left, right = np.random.default_rng(1).standard_normal((2, 400, 400))
    product = multiply.remote(left, right)
    print("multiply: the same as here:", np.allclose(product, multiply(left, right)))

    handle = trace.spawn(300)
    print("spawn: is on its way as", type(handle.id).__name__, "of", len(handle.id), "digits")
    print("spawn: the same as here:", np.isclose(handle.get(timeout=60), trace(300)))

    traces = list(trace.starmap((50, seed) for seed in range(8)))
    print("starmap: in order:", traces == [trace(50, seed) for seed in range(8)])
    print("await: in order:", asyncio.run(at_once(8)) == traces)


if __name__ == "__main__":
    main()
