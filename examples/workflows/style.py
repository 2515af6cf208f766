"""Neural style transfer in three steps that share a sandbox: pre-process, process, post-process.

The "network" is one layer of fixed random filters, so that the example needs neither torch nor a download. The
picture that is wanted has the features of the content, and the correlations between features of the style.
"""

import numpy as np

import aliquot

app = aliquot.App("style")
SIZE, FILTERS, PATCH = 16, 8, 3


def filters() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 1 / PATCH, (PATCH * PATCH, FILTERS))


def patches(picture: np.ndarray) -> np.ndarray:
    rows = np.arange(SIZE - PATCH + 1)
    views = [picture[np.ix_(rows + row, rows + column)] for row in range(PATCH) for column in range(PATCH)]
    return np.stack(views, axis=-1).reshape(-1, PATCH * PATCH)


def unpatched(gradient: np.ndarray) -> np.ndarray:
    """Add the gradients of all patches up to the gradient of the picture."""
    made, rows = np.zeros((SIZE, SIZE)), np.arange(SIZE - PATCH + 1)
    for place, part in enumerate(gradient.reshape(len(rows), len(rows), -1).transpose(2, 0, 1)):
        row, column = divmod(place, PATCH)
        made[np.ix_(rows + row, rows + column)] += part
    return made


def correlations(features: np.ndarray) -> np.ndarray:
    return features.T @ features / len(features)


@app.function(imports=["numpy"])
def preprocess(content: list[list[int]], style: list[list[int]]) -> dict:
    """Scale both pictures to arrays of numbers from -1 to 1."""
    return {"content": np.array(content) / 127.5 - 1, "style": np.array(style) / 127.5 - 1}


@app.function(imports=["numpy"], timeout="2m")
def process(content: np.ndarray, style: np.ndarray, steps: int) -> dict:
    """Change the content step by step until its correlations are those of the style."""
    layer = filters()
    wanted = correlations(patches(style) @ layer)
    kept = patches(content) @ layer
    picture, losses = content.copy(), []
    for _ in range(steps):
        found = patches(picture) @ layer
        difference = correlations(found) - wanted
        losses.append(float((difference**2).sum()))
        gradient = 4 * found @ difference / len(found) + 0.02 * (found - kept) / len(found)
        picture -= 2.0 * unpatched(gradient @ layer.T)
    return {"picture": picture, "first": losses[0], "last": losses[-1]}


@app.function(imports=["numpy"])
def postprocess(picture: np.ndarray, first: float, last: float) -> dict:
    """Scale the picture back to bytes."""
    pixels = np.clip((picture + 1) * 127.5, 0, 255).round().astype(int)
    return {"picture": pixels.tolist(), "first": first, "last": last}


@app.workflow(group="style")
def transfer(content, style, steps=50):
    """Paint the content in the style."""
    scaled = preprocess(content, style)
    made = process(scaled["content"], scaled["style"], steps)
    return postprocess(made["picture"], made["first"], made["last"])


def pictures() -> tuple[list[list[int]], list[list[int]]]:
    """Return a circle, and stripes."""
    row, column = np.mgrid[:SIZE, :SIZE]
    circle = np.where((row - 8) ** 2 + (column - 8) ** 2 < 30, 220, 40)
    return circle.tolist(), np.where(row // 2 % 2, 255, 0).tolist()


if __name__ == "__main__":
    found = transfer.remote(*pictures())
    print("the style is closer:", found["last"] < found["first"] / 4)
    print("the same picture here:", found["picture"] == transfer(*pictures())["picture"])
