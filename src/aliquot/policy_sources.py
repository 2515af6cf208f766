"""Find the class of a policy: in its table, in a Python file, or in an installed package.

A policy is named as in its table, or as `FILE.py:CLASS`, or by an entry point of an installed package. The entry point
is in the group `aliquot.policies.KIND`, such as `aliquot.policies.queueing`, and its value is the class.
"""

import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

from aliquot.core.errors import InputError

T = TypeVar("T")

ENTRY_POINTS = "aliquot.policies"
_FILE_END = ".py:"
_MODULE_PREFIX = "aliquot_policy_file_"
_modules: dict[str, str] = {}  # the path or package that each module of another's policies came from


def find_policy(table: Mapping[str, type[T]], name: str, kind: str, base: type) -> type[T]:
    """Return the class of a policy, or raise `InputError` with all names that are known."""
    found: object
    if _FILE_END in name:
        found = _read_class(name, kind)
    elif name in table:
        return table[name]
    else:
        found = _find_installed(table, name, kind)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(f"{_option(kind)}: {name} is no class that inherits from {base.__module__}.{base.__name__}")
    return cast("type[T]", found)


def short_name(name: str) -> str:
    """Return the name of a policy in tables, records and parameters: of `FILE.py:CLASS` the class."""
    return name.rpartition(":")[2]


def absolute_name(name: str) -> str:
    """Return the name with the whole path of its file, for a process that runs in another folder."""
    file, _, cls = name.rpartition(":")
    return f"{Path(file).absolute()}:{cls}" if _FILE_END in name else name


def installed_policies(kind: str) -> Iterable[EntryPoint]:
    """Return the policies of a kind that other installed packages bring."""
    return entry_points(group=f"{ENTRY_POINTS}.{kind}")


def is_policy_module(module: str) -> bool:
    """Return whether a policy that was asked for by its file or package is in this module."""
    return module in _modules


def _option(kind: str) -> str:
    return "--policy" if kind == "queueing" else f"--{kind}"


def _find_installed(table: Mapping[str, type[T]], name: str, kind: str) -> object:
    installed = {each.name: each for each in installed_policies(kind)}
    if name not in installed:
        known = ", ".join(sorted([*table, *installed]))
        raise InputError(
            f"{_option(kind)}: there is no '{name}'; it takes {known}, or a class in a file: FILE.py:CLASS"
        )
    found = installed[name].load()
    _modules[installed[name].module] = installed[name].module
    return found


def _read_class(name: str, kind: str) -> object:
    text, _, cls = name.rpartition(":")
    module = _load_file(Path(text).absolute(), kind)
    if not hasattr(module, cls):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise InputError(f"{_option(kind)}: {text} has no class {cls}; it has {', '.join(own) or 'none'}")
    return getattr(module, cls)


def _load_file(path: Path, kind: str) -> ModuleType:
    """Import a file once. It is among the imported modules, so that a scheduler with its policy can be pickled."""
    name = f"{_MODULE_PREFIX}{path.stem}"
    earlier = _modules.get(name, str(path))
    if earlier != str(path):
        raise InputError(f"{_option(kind)}: {path} and {earlier} have the same name; rename one of them")
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise InputError(f"{_option(kind)}: there is no file {path}")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{_option(kind)}: {path} is no Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{_option(kind)}: {path} cannot be imported: {type(error).__name__}: {error}") from error
    _modules[name] = str(path)
    return module
