"""Small disks in memory, for tests of full ones."""

import os
import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def small_disk(place, size):
    """Mount a disk of this size, such as `24m`, at a new directory. Skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill_up(place):
    """Write a file until the disk is full, and return its path."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return filler
