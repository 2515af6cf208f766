"""Classes of an app as people write them, and a function that fails in a helper. The tests call them on a server."""

import os
import time

import aliquot

app = aliquot.App("classes")


class Base:
    def size(self):
        return len(self.weights)


@app.cls(timeout="20s")
class Model(Base):
    @aliquot.enter
    def load(self):
        time.sleep(0.2)
        self.loaded = time.monotonic()
        self.weights = [1, 2, 3]

    def predict(self, x, *, scale=1):
        return x * scale * sum(self.weights)

    def when(self):
        return os.getpid(), self.loaded

    def fail(self, what):
        raise ValueError(what)

    def _hidden(self):
        return 1


@app.cls
class Broken:
    @aliquot.enter
    def load(self):
        raise RuntimeError("no weights here")

    def predict(self, x):
        return x


@app.function
def double(x):
    return 2 * x


@app.workflow
def score(x):
    first = Model().predict(double(x), scale=3)
    many = Model().predict.map([1, first])
    return [first, many, Model().size()]


@app.function
def fails(what):
    return helper(what)


def helper(what):
    raise LookupError(what)  # the innermost line
