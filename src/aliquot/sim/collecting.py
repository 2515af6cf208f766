"""Garbage collection during a simulation."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_AFTER = 50_000  # objects made and not dropped between two collections of garbage


@contextmanager
def few_collections() -> Iterator[None]:
    """Let the garbage collector leave out what is there already, and run more rarely.

    A simulation makes and drops objects all the time, and almost none of them in cycles. Searching a long trace and the
    flows of thousands of functions for garbage again and again would take longer than the decisions.
    """
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
