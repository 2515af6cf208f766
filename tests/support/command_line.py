"""Commands of the command line. Most run within the test's process, because starting a process for each is slow."""

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from narrow import lost_words

from aliquot.cli import console, main

TERMINAL = {"COLUMNS": "160", "TERM": "dumb"}
PIPE_COLUMNS = 160  # of output that is no terminal


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


def run_here(*arguments, cwd, environment):
    """Run `aliquot …` with exactly these environment variables.

    Everything that it prints is also laid out for 80 columns, where no word may be cut.
    """
    out, err = io.StringIO(), io.StringIO()
    lost = []
    show = console.output.print

    def print_and_check(*objects, **options):
        lost.extend(lost_words(objects, options))
        show(*objects, **options)

    with (
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(cwd),
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", ["aliquot", *map(str, arguments)]),
        # It was made with the variables of the first command in this process.
        patch.object(console.output, "_width", int(environment.get("COLUMNS", PIPE_COLUMNS))),
        patch.object(console.output, "print", print_and_check),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    assert not lost, f"aliquot {' '.join(map(str, arguments))} at 80 columns cuts {lost}"
    return CommandResult(code, out.getvalue(), err.getvalue())


def aliquot(*arguments, cwd, code=0, columns=160):
    """Run `aliquot …` and return its stdout, or its stderr if it is expected to fail."""
    done = run_here(*arguments, cwd=cwd, environment={**os.environ, **TERMINAL, "COLUMNS": str(columns)})
    assert done.code == code, done.out + done.err
    return done.err if code else done.out


def aliquot_process(*arguments, cwd, code=0, **environment):
    """Run `aliquot …` in a process of its own, for what an environment variable decides at its start."""
    done = subprocess.run(
        [sys.executable, "-m", "aliquot", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **TERMINAL, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout
