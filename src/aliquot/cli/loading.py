"""Find the app in a Python file by importing the file."""

import ast
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import format_exception_only

from aliquot.core.errors import InputError
from aliquot.sdk.app import App
from aliquot.sdk.workflow.mistakes import WorkflowRefusedError


def split_target(target: str) -> tuple[Path, str | None]:
    """Split `vision.py:app` into the file and the app's name, or the name of its variable."""
    text, colon, app = target.rpartition(":")
    if colon and not Path(target).exists():
        return _check_file(Path(text)), app or None
    return _check_file(Path(target)), None


def _check_file(path: Path) -> Path:
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file in it that defines the app, with App(include=…) in it")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    return path


def is_app_file(path: Path) -> bool:
    """Return whether a file imports aliquot. A file that does not parse is left to the platform."""
    if path.suffix != ".py":
        return False
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError):
        return False
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return any(name.split(".")[0] == "aliquot" for name in names)


def load_app(path: Path, wanted: str | None) -> App:
    module = _import(path)
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    apps = {name: app for name, app in apps.items() if app.module is vars(module)}  # leaves out imported apps
    if not apps:
        raise InputError(f"{path} defines no app; it takes a line such as: app = aliquot.App('{path.stem}')")
    if wanted is not None:
        for name, app in apps.items():
            if wanted in {name, app.name}:
                return app
        raise InputError(f"{path} has no app {wanted}; it has {', '.join(apps)}")
    if len(apps) > 1:
        raise InputError(f"{path} has several apps; say which: {' or '.join(f'{path}:{name}' for name in apps)}")
    return next(iter(apps.values()))


def _import(path: Path) -> object:
    spec = spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except WorkflowRefusedError:
        raise  # its mistakes have their lines
    except Exception as error:
        why = "".join(format_exception_only(error)).strip()
        raise InputError(f"{path} cannot be imported here: {why}{_line(error, path)}") from error
    return module


def _line(error: Exception, path: Path) -> str:
    """Return the line of the file in which an error occurred."""
    trace, found = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path.resolve()):
            found = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {found})" if found else ""
