"""Run a function in a child process that uses the memory of its parent, which waits meanwhile.

A fork copies the page tables and, by and by, every page that either process writes to. For a zygote with large imports
this takes ten milliseconds. A child that only enters namespaces and forks again needs no memory of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import sys
from typing import Callable  # noqa: UP035 - Python 3.9 on

_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
_STACK_BYTES = 8 << 20  # as much as a main thread usually has: a process that the child forks goes on using it
_GUARD_BYTES = 64 << 10
_NO_ACCESS = 0
_FAILED = 70
# Python 3.14 compares the stack pointer with the bounds of the thread's own stack, and ends the process.
IS_POSSIBLE = sys.version_info < (3, 14)

_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class BorrowedMemory:
    """The second stack of a process, on which its children run."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, _STACK_BYTES + _GUARD_BYTES, flags=flags)
        self._bottom = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        # Its calls keep the interpreter's lock, which the child then has.
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._libc.mprotect(ctypes.c_void_p(self._bottom), ctypes.c_size_t(_GUARD_BYTES), _NO_ACCESS)

    def run_child(self, do: Callable[[], None]) -> None:
        """Call `do` in a child, and wait until it has ended. Raises `OSError` if there can be no child.

        The child has its own descriptors and credentials. It must close the sockets that it opens, because their
        objects are the parent's, too. `do` raises nothing.
        """

        def run(_: object) -> int:
            do()
            return 0

        function = _Function(run)
        top = ctypes.c_void_p(self._bottom + _GUARD_BYTES + _STACK_BYTES)
        pid = self._libc.clone(function, top, _CLONE_VM | _CLONE_VFORK | signal.SIGCHLD, None)
        if pid < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"clone: {os.strerror(code)}")
        _wait_for(pid)


def run_forked_child(do: Callable[[], None]) -> None:
    """Call `do` in an ordinary child, and wait until it has ended. Raises `OSError` if there can be no child."""
    pid = os.fork()
    if pid == 0:
        status = _FAILED
        try:
            do()
            status = 0
        finally:
            os._exit(status)
    _wait_for(pid)


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # the imports ignore the ends of children
        os.waitpid(pid, 0)
