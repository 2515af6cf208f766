"""An app as people write one. The tests call it in this process and on a server."""

import os
import time
from dataclasses import dataclass

import aliquot

app = aliquot.App("sample")


@dataclass
class Point:
    x: int
    y: int


class OddError(Exception):
    def __init__(self, text, point):
        super().__init__(text, point)
        self.point = point


@app.function
def where():
    return os.getpid()


@app.function(gpu=0.25, memory="2GiB", gpu_memory="1.5GiB", timeout="5s", imports=["json"])
def double(value):
    """Return the value twice."""
    return value * 2


@app.function
def talk(*words):
    for word in words:
        print(word)  # noqa: T201 - what is followed
        time.sleep(0.1)
    return len(words)


@app.function(rerun=True, weight=2)
def mirror(point: Point) -> Point:
    return Point(point.y, point.x)


@app.function
def both(a, b=1):
    return a - b


@app.function
def fail(what):
    if what == "exit":
        raise SystemExit(3)
    if what == "odd":
        raise OddError("odd", Point(1, 2))
    raise ValueError(what)


@app.function
def slow(seconds):
    time.sleep(seconds)
    return seconds
