"""Reads files and says how long it took, from where a sandbox would: `python reader.py MOUNT FOLDER`.

The mount is put into a mount namespace of its own. Each line of its input is how to read and what; each line of its
output is the seconds that it took.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from aliquot.runtime import linux, walls

PIECE = 2**20


def main() -> None:
    mount, folder = int(sys.argv[1]), sys.argv[2]
    mine = os.getuid(), os.getgid()
    if mine[0] == 0:
        linux.unshare(linux.CLONE_NEWNS)
    else:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        walls.map_own_user(*mine)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.attach_mount(mount, folder)
    for line in sys.stdin:
        how, _, path = line.rstrip("\n").partition(" ")
        sys.stdout.write(f"{_WAYS[how](path)}\n")
        sys.stdout.flush()


def _by_open(path: str) -> float:
    buffer = bytearray(PIECE)
    begun = time.perf_counter()
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as a function would
        while file.readinto(buffer):
            pass
    return time.perf_counter() - begun


def _by_cat(path: str) -> float:
    begun = time.perf_counter()
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE, bufsize=0) as process:  # noqa: S603, S607
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        while process.stdout.read(PIECE):
            pass
    return time.perf_counter() - begun


def _forget(path: str) -> float:
    """What the page cache has of it."""
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return 0.0


def _open_all(path: str) -> float:
    """Every file of a directory, opened and closed: for each."""
    names = os.listdir(path)  # noqa: PTH208
    begun = time.perf_counter()
    for name in names:
        os.close(os.open(f"{path}/{name}", os.O_RDONLY))
    return (time.perf_counter() - begun) / len(names)


_WAYS = {"open": _by_open, "cat": _by_cat, "forget": _forget, "opens": _open_all}


if __name__ == "__main__":
    main()
