"""One function of a group: its code, and all that is its own in the process that it shares with others.

Its own are the module of its code, the modules that come from its own folder, where they are looked for, the folder
itself, its environment and its streams. They are in place while it runs, and put away while another does. Libraries
are loaded once and are everybody's, as is whatever else a process has one of.
"""

from __future__ import annotations

import os
import sys
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable  # noqa: UP035 - Python 3.9 on

from . import inside, program

if TYPE_CHECKING:
    from types import ModuleType

_OWN = (program.MODULE, "__main__")


class Member:
    def __init__(self, description: dict[str, Any], surroundings: Surroundings) -> None:
        self.name: str = description["name"]
        self.sdk: bool = description["sdk"]
        self.main: Callable[..., Any] | None = None  # until it is loaded
        self._description = description
        self._failure = ""
        folder = str(Path(surroundings.folder, description["directory"]))
        self._own = folder + os.sep
        self._kept = surroundings.having(description["env"])

    def load(self) -> None:
        """To be called when it is in place. Raises `program.InitError`, or whatever ends a process."""
        if self._failure:
            raise program.InitError(self._failure)
        if self.main is None:
            try:
                self.main = program.load(self._description)
            except program.InitError as error:
                self._failure = str(error)
                raise
            self._description = {}

    def put_in_place(self) -> None:
        self._kept.restore()

    def put_away(self) -> None:
        kept = self._kept = Surroundings()
        for name in [name for name in sys.modules if name not in kept.shared]:
            module = sys.modules[name]
            if name in _OWN or self._is_own(module):
                kept.modules[name] = sys.modules.pop(name)

    def _is_own(self, module: ModuleType) -> bool:
        """From its folder, or from nowhere: made by hand."""
        origin = getattr(module, "__file__", None)
        if origin is None:
            paths = list(getattr(module, "__path__", ()))
            return any((path + os.sep).startswith(self._own) for path in paths) or not getattr(module, "__spec__", None)
        return str(origin).startswith(self._own)


class Surroundings:
    """What a function finds around it: taken as it is now, to be put back later."""

    shared: frozenset[str] = frozenset()  # modules that were there before any function

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.folder = _folder()
        self._path = list(sys.path)
        self.environment = dict(os.environ)
        self._streams = sys.stdout, sys.stderr
        self.apps = inside.registered()

    def having(self, env: dict[str, str]) -> Surroundings:
        """The same for another function, with more in its environment."""
        new = copy(self)
        new.modules, new.apps, new.environment = {}, {}, {**self.environment, **env}
        return new

    def restore(self) -> None:
        sys.modules.update(self.modules)
        sys.path[:] = self._path
        sys.stdout, sys.stderr = self._streams
        inside.register(self.apps)
        for key in os.environ.keys() - self.environment.keys():
            del os.environ[key]
        for key, value in self.environment.items():
            if os.environ.get(key) != value:
                os.environ[key] = value
        os.chdir(self.folder)


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the function removed it
        return os.environ.get("TMPDIR", "/")
