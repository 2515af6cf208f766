"""Virtual environments for the systems that Aliquot is compared with, created once and kept in the user's cache."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TAIL_LINES = 2
INTERPRETER = str(Path(sys.executable).resolve())  # the base Python, because all clones share the cache


class MeasurementError(Exception):
    """A part of a benchmark cannot be measured, for example because a package cannot be installed."""


def cache_folder() -> Path:
    """Return the folder that holds the environments."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "aliquot" / "peers"


def prepare(
    folder: Path, requirements: Sequence[str], on_step: Callable[[str], None], interpreter: str = INTERPRETER
) -> Path:
    """Create an environment with these packages, unless it is there already, and return its folder.

    The packages are installed in their order. A file with the list of requirements is written last, so that an
    interrupted installation is repeated.
    """
    if is_prepared(folder, requirements, interpreter):
        return folder
    mark, wanted = _mark(folder, requirements, interpreter)
    if not Path(interpreter).exists():
        raise MeasurementError(f"it needs {interpreter}, which does not exist")
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)  # first, because the old environment is deleted file by file
    # Our own pip installs into it, because Debian's Python comes without pip.
    run([interpreter, "-m", "venv", "--clear", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    for requirement in requirements:
        on_step(f"installing {requirement} into {folder}")
        run([*pip, "install", "--quiet", requirement])
    mark.write_text(wanted, encoding="utf-8")
    return folder


def is_prepared(folder: Path, requirements: Sequence[str], interpreter: str = INTERPRETER) -> bool:
    """Return whether an environment with these packages is there, so that nothing is downloaded for it."""
    mark, wanted = _mark(folder, requirements, interpreter)
    return mark.exists() and mark.read_text(encoding="utf-8") == wanted


def _mark(folder: Path, requirements: Sequence[str], interpreter: str) -> tuple[Path, str]:
    return folder / "aliquot-installed", "\n".join([interpreter, *requirements])


def version(environment: Path, requirement: str) -> str:
    """Return the version of a package that is installed in an environment."""
    name = requirement.split("[", maxsplit=1)[0].split("=", maxsplit=1)[0]
    script = f"from importlib.metadata import version; print(version({name!r}))"
    return run([python(environment), "-c", script]).strip()


def python(environment: Path) -> str:
    """Return the path of an environment's interpreter."""
    return str(environment / "bin" / "python")


def run(command: Sequence[str]) -> str:
    """Run a command and return its output. Raise `MeasurementError` with its last lines if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise MeasurementError("; ".join(errors[-TAIL_LINES:]) or f"{command[0]} ended with {done.returncode}")
    return done.stdout


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary folder for one server. Its removal does not fail on files that a killed server left."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)
