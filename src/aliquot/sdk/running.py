"""The list of the servers that run on this machine, through which commands find a server with any data folder.

`aliquot up` keeps one small file for its server in the user's state directory while it runs. The file names the data
folder, the address and the process. It holds no key: keys are in the data folder, which only its owner can read.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

_SUFFIX = ".json"


class RunningServer(NamedTuple):
    """A server that runs on this machine, as its file describes it."""

    data: str  # absolute path of the data folder
    url: str
    host: str  # several machines may share a home directory
    pid: int
    started: int  # clock ticks from the boot to the start of the process: pids are used again


def list_servers() -> list[RunningServer]:
    """Return this user's servers that run on this machine, ordered by data folder."""
    found = (_read(path) for path in _paths())
    return sorted(server for server in found if server is not None and _runs(server))


def add_server(data: str, url: str) -> None:
    """Put the server of this process on the list. Raises `OSError` when the list cannot be written."""
    os.makedirs(_folder(), mode=0o700, exist_ok=True)
    os.chmod(_folder(), 0o700)
    _forget_ended()
    server = RunningServer(os.path.abspath(data), url, os.uname().nodename, os.getpid(), start_of(os.getpid()) or 0)
    draft = _own_path() + ".draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(server._asdict(), file)
    os.replace(draft, _own_path())


def remove_server() -> None:
    """Take the server of this process off the list, if it is on it."""
    with contextlib.suppress(OSError):  # a reader also sees that the process has ended
        os.unlink(_own_path())


def start_of(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot. None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in {"Z", "X"} else int(fields[18])


def _folder() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification has relative ones ignored
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "aliquot", "servers")


def _own_path() -> str:
    return os.path.join(_folder(), f"{os.uname().nodename}-{os.getpid()}{_SUFFIX}")


def _paths() -> Iterator[str]:
    """Yield the files of the list that belong to this user."""
    try:
        entries = list(os.scandir(_folder()))
    except OSError:
        return
    for entry in entries:
        try:
            mine = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        except OSError:  # it was removed meanwhile
            continue
        if mine and entry.name.endswith(_SUFFIX):
            yield entry.path


def _read(path: str) -> RunningServer | None:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return RunningServer(
            str(found["data"]), str(found["url"]), str(found["host"]), int(found["pid"]), int(found["started"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _runs(server: RunningServer) -> bool:
    return server.host == os.uname().nodename and start_of(server.pid) == server.started


def _forget_ended() -> None:
    """Remove the files of servers of this machine that could not do so themselves."""
    for path in _paths():
        server = _read(path)
        if server is None or (server.host == os.uname().nodename and not _runs(server)):
            with contextlib.suppress(OSError):
                os.unlink(path)
