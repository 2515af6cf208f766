"""Numbers for what the kernel remembers of a view: inodes and handles, of files and of directories."""

import itertools
import time
from collections.abc import Iterator


def numbers() -> Iterator[int]:
    """Never the same twice, nor by another agent after this one: the kernel still names what that one gave."""
    return itertools.count(time.time_ns() >> 8)
