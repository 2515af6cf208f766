"""Settings of the C library's memory allocator."""

import ctypes

from aliquot.core.units import MIB

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_ARENA_MAX = -1, -2, -8  # of glibc's malloc.h
_TRIM_BYTES = 32 * MIB
_PAD_BYTES = MIB


def use_one_heap() -> None:
    """Let all threads of this process allocate from one heap. Call it before there are any threads.

    By default each thread gets a heap of its own. The store's thread writes in groups, so its heap grows and shrinks
    all the time. Each time the kernel changes the protection of pages and interrupts the other processors.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have one heap anyway
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_M_TOP_PAD, _PAD_BYTES)
