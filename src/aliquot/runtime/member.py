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

    def restore(self) -> None:
        self._saved.restore()

    def save(self) -> None:
        """Save the state of the process, and take the member's own modules out of `sys.modules`."""
        saved = self._saved = ProcessState()
        for name in [name for name in sys.modules if name not in saved.shared]:
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
        self.environment = dict(os.environ)
        self._streams = sys.stdout, sys.stderr
        self.apps = sdk_support.loaded_apps()

    def with_environment(self, env: dict[str, str]) -> ProcessState:
        """Return a copy for another function, with more variables and without modules and apps."""
        new = copy(self)
        new.modules, new.apps, new.environment = {}, {}, {**self.environment, **env}
        return new

    def restore(self) -> None:
        sys.modules.update(self.modules)
        sys.path[:] = self._path
        sys.stdout, sys.stderr = self._streams
        sdk_support.set_apps(self.apps)
        for key in os.environ.keys() - self.environment.keys():
            del os.environ[key]
        for key, value in self.environment.items():
            if os.environ.get(key) != value:
                os.environ[key] = value
        os.chdir(self.folder)


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the function removed it
        return os.environ.get("TMPDIR", "/")
