"""One function of a group: its code, and the state of the process while it runs.

Each function has its own main module, modules from its own folder, import path, working directory, environment and
streams. They are in place while it runs and are saved while another function runs. Libraries are loaded once and
shared by all, like everything else that a process has only once.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable  # noqa: UP035 - Python 3.9 on

from . import program, sdk_support

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType

_MAIN_MODULES = (program.MODULE, "__main__")


class GroupMember:
    """A function of a group, loaded on first use, with its saved process state."""

    def __init__(self, description: dict[str, Any], state: ProcessState) -> None:
        self.name: str = description["name"]
        self.sdk: bool = description["sdk"]
        self.main: Callable[..., Any] | None = None  # until it is loaded
        self._description = description
        self._failure = ""
        self._folder = str(Path(state.folder, description["directory"])) + os.sep
        self._saved = state.with_environment(description["env"])

    def load(self) -> None:
        """Load the code, with the member's state restored.

        Raises `program.InitError`, or an exception that ends a process.
        """
        if self._failure:
            raise program.InitError(self._failure)
        if self.main is None:
            try:
                self.main = program.load(self._description)
            except program.InitError as error:
                self._failure = str(error)
                raise
            self._description = {}

    def restore(self, run_variables: Collection[str] = ()) -> None:
        """Put the member's state in place, except for variables that are set afterwards."""
        self._saved.restore(run_variables)

    def save(self) -> None:
        """Save the state of the process, and take the member's own modules out of `sys.modules`."""
        saved = self._saved = ProcessState()
        for name in sys.modules.keys() - saved.shared:
            module = sys.modules[name]
            if name in _MAIN_MODULES or self._is_own(module):
                saved.modules[name] = sys.modules.pop(name)

    def _is_own(self, module: ModuleType) -> bool:
        """Return whether a module comes from the member's folder, or from no file at all because code made it."""
        origin = getattr(module, "__file__", None)
        if origin is None:
            paths = list(getattr(module, "__path__", ()))
            from_folder = any((path + os.sep).startswith(self._folder) for path in paths)
            return from_folder or not getattr(module, "__spec__", None)
        return str(origin).startswith(self._folder)


class ProcessState:
    """The part of a process's state that each function of a group has for itself, captured when it is made."""

    shared: frozenset[str] = frozenset()  # modules that were loaded before any function

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.folder = _working_directory()
        self._path = list(sys.path)
        self.environment = _environment()
        self._streams = sys.stdout, sys.stderr
        self.apps = sdk_support.loaded_apps()

    def with_environment(self, env: dict[str, str]) -> ProcessState:
        """Return a copy for another function, with more variables and without modules and apps."""
        new = copy(self)
        more = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        new.modules, new.apps, new.environment = {}, {}, {**self.environment, **more}
        return new

    def restore(self, run_variables: Collection[str] = ()) -> None:
        sys.modules.update(self.modules)
        sys.path[:] = self._path
        sys.stdout, sys.stderr = self._streams
        sdk_support.set_apps(self.apps)
        _restore_environment(self.environment, run_variables)
        os.chdir(self.folder)


def _environment() -> dict[bytes, bytes]:
    """Return a copy of the environment, as bytes: to read it as text takes twenty times as long."""
    data = getattr(os.environ, "_data", None)
    if data is not None:
        return dict(data)
    return {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}  # the function replaced it


def _restore_environment(saved: dict[bytes, bytes], skipped: Collection[str]) -> None:
    """Change the variables that differ from the saved ones. Those that are skipped are set afterwards."""
    now = _environment()
    if now == saved:
        return
    skip = {os.fsencode(name) for name in skipped}
    for key in now.keys() - saved.keys() - skip:
        del os.environ[os.fsdecode(key)]
    for key, value in saved.items():
        if now.get(key) != value and key not in skip:
            os.environ[os.fsdecode(key)] = os.fsdecode(value)


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the function removed it
        return os.environ.get("TMPDIR", "/")
