"""`aliquot down`: stops the server on this machine."""

import json
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
    try:
        os.kill(pid, signal.SIGTERM)
        if now:
            os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise InputError(f"--data: the server of {folder} (pid {pid}) belongs to another user") from error
    told = begun
    while start_of(pid) == started:
        time.sleep(_POLL_S)
        if time.monotonic() - told > _REPEAT_S:
            told = time.monotonic()
            errors.print(f"it still runs after {seconds(told - begun)}; --now does not wait for calls", highlight=False)
    taken_s = time.monotonic() - begun
    if as_json:
        print_json({"data": folder, "pid": pid, "seconds": round(taken_s, 3)})
    else:
        say(f"the server of {folder} has stopped")


def _pid_of(folder: str) -> int:
    """Return the process of the server with this data folder. Raises `NoServerError` if none runs."""
    try:
        pid = int(json.loads((Path(folder) / "local.json").read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        pid = 0
    if not pid or start_of(pid) is None:
        raise NoServerError(f"no server runs with the data folder {folder}")
    return pid
