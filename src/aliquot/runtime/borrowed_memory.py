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
from typing import Callable, Iterator  # noqa: UP035 - Python 3.9 on

_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
_STACK_BYTES = 8 << 20  # as much as a main thread usually has: a process that the child forks goes on using it
_HOLDER_STACK_BYTES = 64 << 10
_GUARD_BYTES = 64 << 10
_NO_ACCESS = 0
_FAILED = 70
# Python 3.14 compares the stack pointer with the bounds of the thread's own stack, and ends the process.
IS_POSSIBLE = sys.version_info < (3, 14)

_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_libc = ctypes.PyDLL(None, use_errno=True)  # its calls keep the interpreter's lock, which the child then has

RunChild = Callable[[Callable[[], None]], None]


class _SecondStack:
    """Memory for the stack of a child, with a part at its end that cannot be used."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size + _GUARD_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        bottom = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        _libc.mprotect(ctypes.c_void_p(bottom), ctypes.c_size_t(_GUARD_BYTES), _NO_ACCESS)
        self._top = ctypes.c_void_p(bottom + _GUARD_BYTES + size)

    def clone(self, function: object, flags: int) -> int:
        """Start a child that calls a C function. Return its pid. Raises `OSError`."""
        pid: int = _libc.clone(function, self._top, flags | _CLONE_VM | signal.SIGCHLD, None)
        if pid < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"clone: {os.strerror(code)}")
        return pid


class BorrowedMemory:
    """The second stack of a process, on which its children run."""

    def __init__(self) -> None:
        self._stack = _SecondStack(_STACK_BYTES)

    def run_child(self, do: Callable[[], None]) -> None:
        """Call `do` in a child, and wait until it has ended. Raises `OSError` if there can be no child.

        The child has its own descriptors and credentials. It must close the sockets that it opens, because their
        objects are the parent's, too. `do` raises nothing.
        """

        def run(_: object) -> int:
            do()
            return 0

        _wait_for(self._stack.clone(_Function(run), _CLONE_VFORK))


class NamespaceHolder:
    """A child that does nothing, in new namespaces. It uses our memory, but none of our objects."""

    def __init__(self) -> None:
        self._stack = _SecondStack(_HOLDER_STACK_BYTES)

    @contextlib.contextmanager
    def started(self, flags: int) -> Iterator[int]:
        """Run the child in new namespaces of these kinds, and end it afterwards. Gives its pid."""
        pid = self._stack.clone(_libc.pause, flags)
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)
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


def child_runner() -> RunChild:
    """Return a function that calls another one in a child and waits for its end. It raises `OSError`.

    The child uses this process's memory. Where that is not possible, it is an ordinary fork.
    """
    return BorrowedMemory().run_child if IS_POSSIBLE else run_forked_child


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # the imports ignore the ends of children
        os.waitpid(pid, 0)
