"""Helpers for the tests of volumes: a real mount that a real server of volumes answers."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripted_origin import until

from aliquot.runtime import linux, view_mount
from aliquot.storage.volumes.folder import VolumeFolder
from aliquot.storage.volumes.records import VolumeSpec
from aliquot.storage.volumes.server import VolumeServer
from aliquot.testing.waiting import wait_until

SIZE = 4 * 2**20
VOLUME, OTHER = "1" * 32, "2" * 32
# Runs code in a mounted folder. `refused` gives the name of the errno with which something failed.
_PROGRAM = """
import errno, os, sys, json
os.chdir(sys.argv[1])
def refused(work, *args):
    try:
        work(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"
exec(sys.argv[2])
"""


class MountedVolumes:
    """Mounts of one volume `models`, and of another one, as sandboxes have them."""

    def __init__(self, base: Path, size: int) -> None:
        self.base = base
        self.server = VolumeServer(str(base / "volumes"), [VolumeSpec(VOLUME, size), VolumeSpec(OTHER, size)])
        self.places: list[Path] = []

    @property
    def folder(self) -> VolumeFolder:
        return self.server._open(VOLUME)

    def begin(self, code: str, mount: int = 0) -> subprocess.Popen[str]:
        """Start a program in a mount. This interpreter must not use the mount itself: it would wait for its threads."""
        command = [sys.executable, "-c", _PROGRAM, str(self.places[mount]), code]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)

    def run(self, code: str, mount: int = 0):
        """Run a program in a mount, and return what it prints as JSON."""
        out, _ = (process := self.begin(code, mount)).communicate(timeout=60)
        assert process.returncode == 0
        return json.loads(out) if out else None

    def check_count(self) -> None:
        """Check that the count of bytes is what a new count gives. The kernel tells a moment later what was closed."""
        wait_until(
            lambda: (self.folder.used_bytes, self.folder._count()),
            lambda counts: counts[0] == counts[1],
            what="the count of bytes to be that of the files",
        )


@contextlib.contextmanager
def mounted_volumes(base: Path, size: int = SIZE, mounts: int = 2) -> Iterator[MountedVolumes]:
    made = MountedVolumes(base, size)
    with contextlib.ExitStack() as undo:
        for number in range(mounts):
            device, mount = view_mount.make(writable=True)
            place = base / f"mount{number}"
            place.mkdir()
            linux.attach_mount(mount, str(place))
            os.close(mount)
            undo.callback(linux.unmount, str(place))
            made.places.append(place)
            made.server.mount(number, device, {"models": VOLUME, "other": OTHER}, "guest")
        yield made
    until(lambda: not made.server._stops)  # unmounting ends the threads
