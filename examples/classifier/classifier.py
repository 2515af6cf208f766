"""An image classifier on the platform. Run `python train.py` first, then `python classifier.py` with a platform up."""

from pathlib import Path

import network
import numpy as np

import aliquot

# The included files are deployed with this file, into the same folder.
app = aliquot.App("classifier", include=["network.py", "weights.npz"])

# Loaded at import, once per sandbox, so that warm calls find the model in memory.
WEIGHTS = dict(np.load(Path(__file__).with_name("weights.npz")))


@app.function(gpu=0.25, gpu_memory="256MiB", memory="512MiB", imports=["numpy"])
def classify(images: np.ndarray) -> np.ndarray:
    """Return the probability of each class for each image."""
    return network.predict(WEIGHTS, images)


@app.function(gpu=0.25, gpu_memory="256MiB", memory="512MiB", imports=["numpy"])
def describe(image: list[list[float]]) -> dict[str, float]:
    """Classify one image given as JSON, for clients in other languages."""
    (probabilities,) = network.predict(WEIGHTS, np.array([image], np.float32))
    return {name: round(float(value), 4) for name, value in zip(network.CLASSES, probabilities, strict=True)}


def main() -> None:
    images, kinds = network.make_images(512, seed=2)
    batches = np.array_split(images, 16)
    probabilities = np.concatenate(list(classify.map(batches, concurrency=4)))
    correct = (probabilities.argmax(axis=1) == kinds).mean()
    print(f"{len(images)} images in {len(batches)} calls, {correct:.0%} classified correctly")
    print("same result as a local call:", np.allclose(probabilities, classify(images), atol=1e-5))
    guess = describe.remote(images[0].tolist())
    print("class of the first image:", max(guess, key=lambda name: guess[name]))


if __name__ == "__main__":
    main()
