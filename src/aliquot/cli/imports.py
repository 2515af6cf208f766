"""Find the packages that an app's file imports and its functions do not require, before a call fails by it."""

import ast
import re
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

from aliquot.sdk.app import App

_MAX_DEPTH = 4  # requirements of requirements that are looked at


class MissingRequirement(NamedTuple):
    """A module that is imported, and the functions that do not require its package."""

    line: int
    module: str
    package: str
    functions: list[str]

    def text(self, path: Path) -> str:
        do = f"{', '.join(self.functions)} {'does' if len(self.functions) == 1 else 'do'}"
        return (
            f"{path}:{self.line}: imports {self.module}, but {do} not require it: "
            f'requirements=["{self.package}"], unless the server has it (aliquot up --python)'
        )


def missing_requirements(path: Path, app: App) -> list[MissingRequirement]:
    """Return the packages that the file imports at its top and that not all of its functions require."""
    distributions = packages_distributions()
    missing = []
    for module, line in _imported(path).items():
        if module in sys.stdlib_module_names or module == "aliquot" or _is_beside(path, module):
            continue
        packages = {_normal(name) for name in distributions.get(module, [module])}
        lacking = [
            function.action
            for function in app.functions.values()
            if not packages & _closure({_normal(text) for text in function.needs.requirements})
        ]
        if lacking:
            missing.append(MissingRequirement(line, module, min(packages), lacking))
    return missing


def _imported(path: Path) -> dict[str, int]:
    """Return the modules that are imported when the file is, with their lines. A handled ImportError is no need."""
    found: dict[str, int] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Import):
            for name in node.names:
                found.setdefault(name.name.partition(".")[0], node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.setdefault(node.module.partition(".")[0], node.lineno)
    return found


def _is_beside(path: Path, module: str) -> bool:
    return (path.parent / f"{module}.py").exists() or (path.parent / module).is_dir()


def _closure(packages: set[str]) -> set[str]:
    """Return the packages with those that they require themselves, as far as they are installed here."""
    known, fresh = set(packages), set(packages)
    for _ in range(_MAX_DEPTH):
        fresh = {_normal(text) for package in fresh for text in _requires(package)} - known
        known |= fresh
    return known


def _requires(package: str) -> list[str]:
    try:
        return [text for text in requires(package) or [] if "extra ==" not in text]
    except PackageNotFoundError:
        return []


def _normal(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
