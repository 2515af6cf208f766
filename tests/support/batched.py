"""An app with functions that take batches, as people write one."""

import os
import time

import aliquot

app = aliquot.App("batched")
RUN_S = 0.15  # long enough for other calls to arrive meanwhile


@app.function(batch=16)
def sizes(items):
    """Return each item with the number of items of its run."""
    time.sleep(RUN_S)
    print("ran", len(items))  # noqa: T201 - for the records
    return [(item, len(items)) for item in items]


@app.function(batch=16)
def careful(items):
    """Fail the negative items alone."""
    time.sleep(RUN_S)
    return [ValueError(f"{item} is negative") if item < 0 else item for item in items]


@app.function(batch=16, pure=True)
def pure(items):
    """Raise for the whole batch if one item is negative."""
    time.sleep(RUN_S)
    if min(items) < 0:
        raise ValueError(f"a negative item among {len(items)}")
    return [(item, len(items)) for item in items]


@app.function(batch=16)
def once(items):
    """Raise like `pure`, without the right to run again."""
    return pure.raw(items)


@app.function(batch=16, rerun=True)
def deadly(items):
    """End the process if one item is negative."""
    time.sleep(RUN_S)
    if min(items) < 0:
        os._exit(1)
    return items


@app.function(batch=16)
def forgetful(items):
    """Lose an item of each batch."""
    time.sleep(RUN_S)
    return items[1:]


@app.function(batch=4, pure=True)
def hungry(items):
    """Fail like a device without memory if more than three items come at once."""
    time.sleep(RUN_S)
    if len(items) > 3:
        raise type("OutOfMemoryError", (RuntimeError,), {})("out of memory")
    return [len(items) for _ in items]


@app.function(pure=True, cache_ttl="10m")
def remembered(item):
    """Return something that differs between runs."""
    return item, os.urandom(8)
