"""Give each forked sandbox random numbers of its own. Otherwise all sandboxes of a zygote would draw the same ones."""

from __future__ import annotations

import contextlib
import sys


def reseed() -> None:
    """Seed the global generators of the modules that the zygote has loaded. No module is imported for it."""
    for name, method in (("random", "seed"), ("numpy.random", "seed"), ("torch", "seed")):
        module = sys.modules.get(name)
        if module is not None:
            with contextlib.suppress(Exception):  # a module of this name may be anything
                getattr(module, method)()
