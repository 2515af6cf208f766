"""Install the packages of the kinds for an operator, with the operator's own settings of pip and npm."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot.durable_files import remove_directory
from aliquot.live.node.environments.pip_settings import has_pip
from aliquot.live.node.kind_packages import PACKAGES, KindFolder, interpreter, make_environment
from aliquot.live.store.records import NODEJS, PYTHON

_PIP_OPTIONS = ("install", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--quiet")
_NPM_OPTIONS = ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--loglevel=error")
_COMPILED = ("netifaces",)  # packages without wheels
_OFFLINE = "Is this machine connected to a package index? pip and npm use the settings of this user."
_MAX_SAID_LENGTH = 1000

Progress = Callable[[str], None]


class InstallationError(Exception):
    """The packages of a kind cannot be installed. The text says what to do."""


def install_packages(data: Path, kind: str, progress: Progress, *, again: bool = False) -> KindFolder:
    """Install the packages of a kind unless they are there. Raises `InstallationError`."""
    folder = KindFolder(data, kind)
    if folder.installed() is not None and not again:
        progress(f"{kind}: its packages are installed already, in {folder.path}")
        return folder
    install = {PYTHON: _install_python, NODEJS: _install_nodejs}[kind]
    before = os.umask(0o022)  # sandboxes run as other users
    try:
        remove_directory(folder.path)
        folder.path.mkdir(parents=True)
        progress(f"{kind}: installing {', '.join(folder.packages)}")
        folder.mark_complete(install(folder, progress))
    except BaseException:
        remove_directory(folder.path)
        raise
    finally:
        os.umask(before)
    return folder


def installable_kinds() -> list[str]:
    """Return the kinds whose packages can be installed here."""
    return [kind for kind in PACKAGES if kind != NODEJS or shutil.which("node")]


def _install_python(folder: KindFolder, progress: Progress) -> tuple[str, ...]:
    """Install the packages of Python. Return those that must be compiled, if this machine cannot do it."""
    make_environment(folder.path, with_pip=not has_pip())
    python = str(interpreter(folder.path))
    pip = [sys.executable, "-m", "pip", "--python", python] if has_pip() else [python, "-m", "pip"]
    if not _run([*pip, *_PIP_OPTIONS, *folder.packages]):
        return ()
    compiled = tuple(package for package in folder.packages if package.startswith(_COMPILED))
    progress(f"{folder.kind}: that failed, and is tried without {', '.join(compiled)}, which must be compiled")
    others = [package for package in folder.packages if package not in compiled]
    if said := _run([*pip, *_PIP_OPTIONS, *others]):
        raise InstallationError(f"pip cannot install its packages: {said}\n{_OFFLINE}")
    return compiled


def _install_nodejs(folder: KindFolder, _: Progress) -> tuple[str, ...]:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallationError("npm is not on the PATH.")
    # npm uses the certificates of the system instead of its own, because only those work behind a company's proxy.
    env = {"NODE_OPTIONS": "--use-openssl-ca", **os.environ}
    if said := _run([npm, *_NPM_OPTIONS, "--prefix", str(folder.path), *folder.packages], env):
        raise InstallationError(f"npm cannot install its packages: {said}\n{_OFFLINE}")
    return ()


def _run(command: Sequence[str], env: dict[str, str] | None = None) -> str:
    """Run a command. Return the end of what it said if it fails, and an empty text otherwise."""
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603
    if not done.returncode:
        return ""
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return said[-_MAX_SAID_LENGTH:] or f"exit status {done.returncode}"
