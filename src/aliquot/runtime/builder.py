"""Build a Python environment for functions, isolated like a sandbox: `python -I builder.py SETTINGS`.

An installation runs code from the packages' authors. So it gets the same isolation and the same kinds of limits as a
sandbox. Only the environment and a scratch directory can be written. SETTINGS is a JSON object: isolation, cgroup_fds,
channel, uid, processes, file_bytes, memory_bytes (without a control group), directory, scratch, has_pip, install (the
arguments of pip), requirements.

The channel is a Unix socket of packets. The builder sends a socket that listens in its network, for the index proxy. It
goes on when it receives its environment variables, a JSON object.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import isolation
    from .units import MIB
else:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from runtime import isolation
    from runtime.units import MIB

_PACKET_BYTES = 1 << 17
_MEMORY_FILES_BYTES = 64 * MIB  # of /tmp and /dev/shm each; builds use their scratch directory


def _exchange(fd: int) -> dict[str, str]:
    """Send the socket for the index proxy, and return the environment variables of the installation."""
    with socket.socket(fileno=fd) as channel, socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        socket.send_fds(channel, [b"listener"], [listener.fileno()])
        received = channel.recv(_PACKET_BYTES)
    if not received:
        sys.exit("the server has ended")
    env: dict[str, str] = json.loads(received)
    return env


def _pip_for(python: str) -> list[str]:
    """Return the command of this interpreter's pip for another one.

    `pip --python` starts pip a second time, with the file that is started here at once. That saves a third of the time.
    """
    found = importlib.util.find_spec("pip")
    if found is not None and found.origin:
        runner = Path(found.origin).with_name("__pip-runner__.py")  # since pip 22.3
        if runner.is_file():
            return [python, str(runner)]
    return [sys.executable, "-m", "pip", "--python", python]


def main() -> None:
    settings = json.loads(sys.argv[1])
    for procs in settings["cgroup_fds"]:
        os.write(procs, b"0")  # enter the control groups before anything uses resources
        os.close(procs)
    scratch, directory = settings["scratch"], settings["directory"]
    os.umask(0o022)  # sandboxes run as other users
    isolation.enclose(settings["isolation"])
    env = _exchange(settings["channel"])
    isolation.enter(
        settings["isolation"],
        {
            "uid": settings["uid"],
            "env": {"TMPDIR": scratch},
            "scratch_bytes": _MEMORY_FILES_BYTES,
            "file_bytes": settings["file_bytes"],
            "processes": settings["processes"],
            "views": [],
        },
    )
    if settings["memory_bytes"] is not None:
        isolation.limit_data(settings["memory_bytes"])
    os.environ.update(env, TMPDIR=scratch, HOME=scratch)
    venv = [sys.executable, "-m", "venv", "--without-pip", directory]
    pip = _pip_for(str(Path(directory, "bin", "python")))
    if not settings["has_pip"]:
        venv.remove("--without-pip")
        pip = [str(Path(directory, "bin", "python")), "-m", "pip"]
    for command in (venv, [*pip, *settings["install"], *settings["requirements"]]):
        status = subprocess.call(command)  # noqa: S603 - no shell, and isolated
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()
