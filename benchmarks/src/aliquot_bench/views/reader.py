"""A program that reads files as a sandbox does, and times it: `python reader.py MOUNT FOLDER`.

It attaches the mount in a mount namespace of its own. Each line of its input is a way to read and a path. Each line of
its output is the number of seconds that it took.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from aliquot.runtime import isolation, linux

BUFFER_BYTES = 2**20


def main() -> None:
    mount, folder = int(sys.argv[1]), sys.argv[2]
    mine = os.getuid(), os.getgid()
    if mine[0] == 0:
        linux.unshare(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        isolation.map_own_user(*mine)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.attach_mount(mount, folder)
    for line in sys.stdin:
        how, _, path = line.rstrip("\n").partition(" ")
        sys.stdout.write(f"{_WAYS[how](path)}\n")
        sys.stdout.flush()


def _by_open(path: str) -> float:
    buffer = bytearray(BUFFER_BYTES)
    began = time.perf_counter()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as functions do
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def _by_cat(path: str) -> float:
    began = time.perf_counter()
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE, bufsize=0) as process:  # noqa: S603, S607
        assert process.stdout is not None  # noqa: S101 - for the type checker
        while process.stdout.read(BUFFER_BYTES):
            pass
    return time.perf_counter() - began


def _forget(path: str) -> float:
    """Drop the file from the page cache."""
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return 0.0


def _open_all(path: str) -> float:
    """Open and close every file of a directory, and return the mean seconds."""
    names = os.listdir(path)  # noqa: PTH208
    began = time.perf_counter()
    for name in names:
        os.close(os.open(f"{path}/{name}", os.O_RDONLY))
    return (time.perf_counter() - began) / len(names)


_WAYS = {"open": _by_open, "cat": _by_cat, "forget": _forget, "opens": _open_all}


if __name__ == "__main__":
    main()
