"""An image classifier on the platform. Run `python train.py` first, then `python classifier.py` with a platform up."""

from pathlib import Path

import network
import numpy as np

import aliquot

# What the file needs beside itself is sent along, and lies beside it there, too.
app = aliquot.App("classifier", include=["network.py", "weights.npz"])

# At import, so once for each sandbox: a warm call finds the model loaded.
WEIGHTS = dict(np.load(Path(__file__).with_name("weights.npz")))


@app.function(gpu=0.25, gpu_memory="256MiB", memory="512MiB", imports=["numpy"], latency_slo="200ms")
def classify(images: np.ndarray) -> np.ndarray:
    """Probabilities for each picture and class."""
    return network.predict(WEIGHTS, images)


@app.function(memory="512MiB", imports=["numpy"])
def describe(image: list[list[float]]) -> dict[str, float]:
    """The same for one picture as JSON, for clients that do not speak Python."""
    (chances,) = network.predict(WEIGHTS, np.array([image], np.float32))
    return {name: round(float(chance), 4) for name, chance in zip(network.CLASSES, chances, strict=True)}


def main() -> None:
    images, kinds = network.pictures(512, seed=2)
    batches = np.array_split(images, 16)
    chances = np.concatenate(list(classify.map(batches, concurrency=4)))
    print(f"{len(images)} pictures in {len(batches)} calls, right for {(chances.argmax(axis=1) == kinds).mean():.0%}")
    print("the same as here:", np.allclose(chances, classify(images), atol=1e-5))
    guess = describe.remote(images[0].tolist())
    print("the first picture:", max(guess, key=lambda name: guess[name]))


if __name__ == "__main__":
    main()
