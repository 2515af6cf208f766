"""Replace the Python launcher by one in another language: unpack an archive, and execute the command.

The new launcher finds the frames on descriptor 3 and the function's description, as JSON, on descriptor 4.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import archive, frames

if TYPE_CHECKING:
    import socket

_DESCRIPTION_FD = 4
_NOT_UNPACKED = "Initialization has failed due to: There was an error uncompressing the action archive."


def execute(sock: socket.socket, description: dict[str, Any]) -> NoReturn:
    """Unpack the code, pass the description, and execute the other language's launcher."""
    command = description["command"]
    description["directory"] = None
    if description["binary"] and description["code"].strip():
        directory = Path(os.environ["TMPDIR"], "action")
        try:
            directory.mkdir()
            archive.unpack(description["code"], directory)
        except (archive.ArchiveError, OSError) as error:
            sys.stderr.write(f"The code cannot be unpacked: {error}.\n")
            frames.send(sock, frames.DEVELOPER_ERROR, json.dumps({"error": _NOT_UNPACKED}).encode())
            os._exit(0)
        description["directory"] = str(directory)
        description["code"] = "-"  # it is in the directory now
    fd = os.memfd_create("description", 0)
    with open(fd, "wb", closefd=False) as file:
        file.write(json.dumps(description).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    os.dup2(fd, _DESCRIPTION_FD, inheritable=True)
    if fd != _DESCRIPTION_FD:
        os.close(fd)
    os.set_inheritable(sock.fileno(), True)
    os.execve(command[0], command, os.environ)  # noqa: S606 - no shell is wanted
