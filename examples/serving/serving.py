"""Serve networks: a small one, a large one with a version for processors, an ensemble of small ones, and a cascade."""

import numpy as np
from networks import classify, samples

import aliquot

app = aliquot.App("serving", include=["networks.py"])
SURE = 0.25  # how far the best class must be ahead of the next one


def answers(pictures: list[np.ndarray], width: int, seed: int) -> list[dict]:
    classes, margins = classify(np.array(pictures), width, seed)
    return [{"digit": int(digit), "margin": float(margin)} for digit, margin in zip(classes, margins, strict=True)]


@app.function(batch=16)
def small(pictures: list[np.ndarray]) -> list[dict]:
    return answers(pictures, 32, 1)


@app.function(batch=16)
def second(pictures: list[np.ndarray]) -> list[dict]:
    return answers(pictures, 32, 2)


@app.function(batch=16)
def third(pictures: list[np.ndarray]) -> list[dict]:
    return answers(pictures, 32, 3)


@app.function(batch=16, gpu=0.5)
def large(pictures: list[np.ndarray]) -> list[dict]:
    return answers(pictures, 1024, 1)


@large.variant("cpu")
def large_on_cpu(pictures: list[np.ndarray]) -> list[dict]:
    """Classify with a quarter of the hidden units, because processors are slower."""
    return answers(pictures, 256, 1)


@app.workflow
def cascade(picture):
    """Ask the large network only where the small one is not sure."""
    found = small(picture)
    if found["margin"] < SURE:
        found = large(picture)
    return found["digit"]


@app.workflow
def ensemble(picture):
    """Ask three networks at once, and take the digit of the one that is most sure."""
    found = aliquot.parallel(small(picture), second(picture), third(picture))
    return max([each["margin"], each["digit"]] for each in found)[1]


if __name__ == "__main__":
    pictures, digits = samples(100, seed=99)
    rows = [picture.tolist() for picture in pictures]
    for name, model in (("small", small), ("large", large)):
        found = [each["digit"] for each in model.map(rows)]
        print(name, f"{np.mean(found == digits):.0%} right")
    for name, workflow in (("cascade", cascade), ("ensemble", ensemble)):
        found = [workflow.remote(row) for row in rows[:20]]
        print(name, f"{np.mean(found == digits[:20]):.0%} right")
