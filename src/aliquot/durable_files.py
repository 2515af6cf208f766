"""Write and remove files so that a process killed at any moment leaves nothing half done under a name that is read."""

import os
import shutil
from pathlib import Path

_REMOVED = ".removed-"


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Wait until the disk has the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_directory(directory: Path) -> None:
    """Rename a directory, then delete it, so that its files never disappear one by one under its own name.

    `sweep_removed` deletes the rest of a deletion that was cut short. A missing directory is no error.
    """
    renamed = directory.with_name(_REMOVED + directory.name)
    shutil.rmtree(renamed, ignore_errors=True)  # an earlier deletion of the same name was cut short
    try:
        directory.rename(renamed)
    except FileNotFoundError:
        return
    shutil.rmtree(renamed, ignore_errors=True)


def sweep_removed(parent: Path) -> None:
    """Delete what interrupted calls of `remove_directory` left in a directory."""
    for renamed in parent.glob(f"{_REMOVED}*"):
        shutil.rmtree(renamed, ignore_errors=True)
