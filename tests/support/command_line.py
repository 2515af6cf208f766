"""Commands of the command line, run within the test's process, because starting a process for each is slow."""

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from aliquot.cli import console, main

PIPE_COLUMNS = 160  # of output that is no terminal


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


def run_here(*arguments, cwd, environment):
    """Run `aliquot …` with exactly these environment variables."""
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(cwd),
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", ["aliquot", *map(str, arguments)]),
        # It was made with the variables of the first command in this process.
        patch.object(console.output, "_width", int(environment.get("COLUMNS", PIPE_COLUMNS))),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return CommandResult(code, out.getvalue(), err.getvalue())
