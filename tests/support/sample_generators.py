"""Functions that yield, as people write them. The tests call them on a server."""

import time

import aliquot

app = aliquot.App("parts")


@app.function
def count(to, pause=0.0, fail_at=None):
    for number in range(to):
        if number == fail_at:
            raise ValueError(f"no {number}")
        print("yields", number)  # noqa: T201 - a log line between the parts
        yield {"number": number}
        time.sleep(pause)


@app.function
def endless(size=10):
    number = 0
    try:
        while True:
            yield number, b"x" * size
            number += 1
    finally:
        print("closed after", number)  # noqa: T201 - by which the test knows


@app.function
def strange(what):
    yield 1
    yield {"large": b"x" * (5 << 20), "set": {1, 2}}[what]


@app.cls
class Speaker:
    @aliquot.enter
    def load(self):
        self.words = ["so", "it", "goes"]

    def say(self, times):
        for _ in range(times):
            yield from self.words
