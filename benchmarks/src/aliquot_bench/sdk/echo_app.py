"""The function that the benchmark calls."""

import aliquot

app = aliquot.App("echoes")


@app.function
def echo(x: int) -> int:
    return x
