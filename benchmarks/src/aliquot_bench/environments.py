"""Environments of their own for the peers, made once and kept under the user's cache."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TAIL_LINES = 2
INTERPRETER = str(Path(sys.executable).resolve())  # not a clone's: all clones share the cache


class MeasurementError(Exception):
    """A peer cannot be had, or does not work; the text says why."""


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "aliquot" / "peers"


def prepare(
    folder: Path, requirements: Sequence[str], on_step: Callable[[str], None], interpreter: str = INTERPRETER
) -> Path:
    """The environment with these packages, one after the other; what it holds already is not installed again.

    A mark with the requirements is written last: an installation that broke off is begun anew.
    """
    mark, wanted = folder / "aliquot-installed", "\n".join([interpreter, *requirements])
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return folder
    if not Path(interpreter).exists():
        raise MeasurementError(f"it needs {interpreter}, which is not there")
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)  # first: the old environment goes file by file, and must not pass for a whole one
    # Ours installs for all: a Debian's Python comes without pip.
    run([interpreter, "-m", "venv", "--clear", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    for requirement in requirements:
        on_step(f"installing {requirement} into {folder}")
        run([*pip, "install", "--quiet", requirement])
    mark.write_text(wanted, encoding="utf-8")
    return folder


def version(environment: Path, requirement: str) -> str:
    """Of an installed package, as its environment says."""
    name = requirement.split("[", maxsplit=1)[0].split("=", maxsplit=1)[0]
    script = f"from importlib.metadata import version; print(version({name!r}))"
    return run([python(environment), "-c", script]).strip()


def python(environment: Path) -> str:
    return str(environment / "bin" / "python")


def run(command: Sequence[str]) -> str:
    """What a command writes; one that fails is an error with the last it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise MeasurementError("; ".join(errors[-TAIL_LINES:]) or f"{command[0]} ended with {done.returncode}")
    return done.stdout


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary folder for one server. Files that a killed server leaves open do not make its removal fail."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)
