# ruff: noqa: T201 - written as users would write it
"""An app whose functions hand values to each other: inside their sandbox, and from sandbox to sandbox."""

import builtins
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

import aliquot
from aliquot.sdk.errors import UsageError
from aliquot.sdk.sandbox import sandbox

app = aliquot.App("handing")
calls = []


class Point:
    def __init__(self, x):
        self.x = x


class OwnError(Exception):
    pass


@app.function(group="pair", imports=["numpy"])
def outer(kind, size=1000):
    calls.append(kind)
    print("outer before")
    value = np.arange(size, dtype=np.float64) if kind == "array" else b"x" * size
    builtins.here = [id(value)]
    if kind == "own":
        return inner.remote(Point(3)).x
    if kind == "raise":
        try:
            inner.remote("raise")
        except OwnError as error:
            return str(error), error.__notes__[-1]
    if kind in {"end", "slow"}:
        return inner.remote("end") if kind == "end" else slow.remote()
    back = inner.remote(value)
    print("outer after")
    return back is value, builtins.here == [id(value), id(value)], len(calls)


@app.function(group="pair", timeout=2)
def inner(value):
    print("inner")
    if isinstance(value, Point):
        return Point(value.x * 2)
    if isinstance(value, str):
        if value == "raise":
            raise OwnError("of inner")
        if value == "sleep":
            time.sleep(60)
        if value == "lock":
            return Point(threading.Lock())
        if value == "leave":
            sys.exit(3)
        os._exit(3)
    builtins.here = [*getattr(builtins, "here", []), id(value)]
    assert not calls  # of its own module, which is another
    return value


@app.function(group="pair")
def bold(kind, size=1):
    """Calls that do not come to a good end, or should not be made."""
    calls.append(kind)
    if kind == "many":
        for _ in range(size):
            inner.remote(None)
    if kind == "tell":
        sandbox.channel.ask({"begin": "handing.inner"})
        sandbox.channel.ask({"end": 3}, b'{"error": "whose fault?"}')
    if kind in {"lock", "leave"}:
        try:
            inner.remote(kind)
        except (UsageError, SystemExit) as error:
            return str(error), len(calls)
    return len(calls)


@app.function(group="pair")
def slow():
    print("slow", flush=True)
    time.sleep(60)


@app.function
def alone():
    sandbox.channel.ask({"begin": "handing.alone"})


@app.function(calls=True, imports=["numpy"], memory="1GiB")
def sender(size, kind="array"):
    """Calls a function in another sandbox; what came of it, and how it looked on the way."""
    value = np.arange(size // 8, dtype=np.float64) if kind == "array" else bytes(size)
    builtins.sender = True
    if kind == "bytes":
        put, made = sandbox.channel.put, []
        sandbox.channel.put = lambda buffers: made.append(put(buffers)) or made[-1]
        try:
            return *receiver.remote(value), len(made)
        finally:
            sandbox.channel.put = put
    total, back = receiver.remote(value)
    same = bool((back[1:] == value[1:]).all())
    return {
        "total": total,
        "same": same,
        "first": float(back[0]),
        "mine": float(value[0]),
        "writable": back.flags.writeable,
    }


@app.function(imports=["numpy"], memory="1GiB")
def receiver(value):
    assert not hasattr(builtins, "sender")  # another process
    with Path("/proc/self/maps").open() as maps:
        shared = "aliquot-buffer" in maps.read()
    if isinstance(value, bytes):
        return type(value).__name__, len(value)
    total = float(value.sum())
    value[0] = -1.0  # its own copy of that page
    return (total, shared), value


@app.function(calls=True, imports=["numpy"], memory="512MiB")
def holder(size):
    value = np.ones(size // 8)
    return sleeper.remote(value)


@app.function(imports=["numpy"])
def sleeper(value):
    print("holds", value.nbytes, flush=True)
    time.sleep(60)


@app.function(imports=["numpy"])
def make(size):
    builtins.maker = True
    return np.arange(size // 8, dtype=np.float64)


@app.function(imports=["numpy"])
def double(value, factor=2):
    assert not hasattr(builtins, "maker")  # another process
    with Path("/proc/self/maps").open() as maps:
        shared = "aliquot-buffer" in maps.read()
    return {"value": value * factor, "shared": shared, "set": {1}}


@app.function(imports=["numpy"])
def total(value, shared, **_):
    return {"total": float(value.sum()), "shared": shared}


@app.function(calls=True)
def spawner(size):
    return taker.spawn(bytes(size)).get()


@app.function
def taker(value):
    return len(value), value[:1]


@app.function(calls=True)
def asker(size):
    return len(giver.spawn(size).get())


@app.function
def giver(size):
    return bytes(size)
