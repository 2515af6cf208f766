"""`aliquot down`: stops the server on this machine."""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from aliquot.cli.console import errors, say
from aliquot.cli.gateway import AsJson, Data
from aliquot.cli.results import print_json, seconds
from aliquot.core.errors import InputError
from aliquot.sdk.errors import NoServerError
from aliquot.sdk.running import start_of
from aliquot.sdk.server import find_folder

_POLL_S = 0.05
_REPEAT_S = 5.0


def down(
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for calls that run. They end as interrupted.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Stop the server on this machine, and wait until it has ended.

    Running calls get the time of [bold]aliquot up --grace[/], 30 s by default. Accepted calls that wait are kept and
    run after the next start.
    """
    folder = find_folder(data)
    pid = _pid_of(folder)
    started = start_of(pid)
    begun = time.monotonic()
    _tell(pid, signal.SIGTERM, folder)
    told = begun
    while start_of(pid) == started:
        time.sleep(_POLL_S)
        if now:  # again and again, because one that arrives together with the first signal may come before it
            _tell(pid, signal.SIGINT, folder)
        if time.monotonic() - told > _REPEAT_S:
            told = time.monotonic()
            errors.print(f"it still runs after {seconds(told - begun)}; --now does not wait for calls", highlight=False)
    taken_s = time.monotonic() - begun
    if as_json:
        print_json({"data": folder, "pid": pid, "seconds": round(taken_s, 3)})
    else:
        say(f"the server of {folder} has stopped")


def _tell(pid: int, number: signal.Signals, folder: str) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended
        pass
    except PermissionError as error:
        raise InputError(f"--data: the server of {folder} (pid {pid}) belongs to another user") from error


def _pid_of(folder: str) -> int:
    """Return the process of the server with this data folder. Raises `NoServerError` if none runs.

    A server holds a lock on a file with its process id for as long as it runs. The id of one that was killed may belong
    to another process by now, but that one does not hold the lock.
    """
    try:
        with (Path(folder) / "lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
    except (OSError, ValueError):
        pass
    raise NoServerError(f"no server runs with the data folder {folder}")
