"""An app that tells which trace its functions belong to."""

import os

import aliquot

app = aliquot.App("traced")


@app.function
def leaf() -> list[str]:
    return [os.environ.get("TRACEPARENT", ""), os.environ.get("TRACESTATE", "")]


@app.function(calls=True)
def branch() -> list[list[str]]:
    return [[os.environ.get("TRACEPARENT", "")], leaf.remote()]


@app.workflow
def flow():
    first = leaf()
    return [first, branch()]
