"""The code of an app as it is sent: the text of its file, or a zip of that file and the included ones.

Unsupported apps are refused before anything is sent: those that were typed at the interactive prompt, and those that
import files beside them without including them. An app in a notebook has no file (`notebook.py`).
"""

import os
from typing import Any, NamedTuple

from aliquot.runtime.units import MIB
from aliquot.sdk.errors import UsageError

KIND = "python:3.11"
_NOTEBOOK = "notebook.py"  # the name in tracebacks of a file that was written of cells
_MAX_BYTES = 36 * MIB  # the platform takes 48 MiB of base64


class AppCode(NamedTuple):
    """The code of an app, ready to be sent."""

    text: str  # Python, or base64 of a zip
    digest: str
    file: str  # the name of the app's file, for tracebacks


def read_code(app: str, module: dict[str, Any], include: tuple[str, ...], wrapped: tuple[Any, ...]) -> AppCode:
    """Read the code of the module that made the app. In a notebook it is that of these functions or classes."""
    from hashlib import sha256

    path = module.get("__file__")
    if not path or not os.path.isfile(path):
        if include:
            raise UsageError(
                f"app {app!r}, include: a notebook has no folder for {include[0]!r} to be in; put the app into a .py "
                "file beside it, and import it from there"
            )
        from aliquot.sdk.notebook import write_module

        text = write_module(app, wrapped, module)
        return AppCode(text, sha256(text.encode()).hexdigest(), _NOTEBOOK)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"app {app!r}: {path} cannot be read: {error}") from error
    folder = os.path.dirname(os.path.abspath(path))
    files = _included(app, folder, include)
    _check_imports(app, path, text, folder, files)
    if files:
        text = zip_files({"__main__.py": text.encode(), **{name: _bytes(path) for name, path in files.items()}})
    if len(text) > _MAX_BYTES * 4 // 3:
        raise UsageError(f"app {app!r}: its code has {len(text) >> 20} MiB; the platform takes at most 48 MiB")
    return AppCode(text, sha256(text.encode()).hexdigest(), os.path.basename(path))


def _included(app: str, folder: str, include: tuple[str, ...]) -> dict[str, str]:
    """Return the paths of the included files by their names in the zip, ordered by name."""
    files: dict[str, str] = {}
    for name in include:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isabs(name) or not path.startswith(folder + os.sep):
            raise UsageError(f"app {app!r}, include: {name!r} is not below {folder}; it takes names relative to it")
        if os.path.isdir(path):
            for root, folders, names in os.walk(path):
                folders[:] = sorted(inner for inner in folders if inner != "__pycache__")
                files.update({os.path.relpath(os.path.join(root, n), folder): os.path.join(root, n) for n in names})
        elif os.path.isfile(path):
            files[os.path.relpath(path, folder)] = path
        else:
            raise UsageError(f"app {app!r}, include: there is no {name!r} in {folder}")
    files.pop("__main__.py", None)
    return dict(sorted(files.items()))


def _check_imports(app: str, path: str, text: str, folder: str, files: dict[str, str]) -> None:
    """Refuse imports of files beside the app that are not included. They would fail in the sandbox."""
    import ast

    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        raise UsageError(f"app {app!r}: {path}:{error.lineno}: {error.msg}") from error
    tops = {name.split(os.sep)[0].removesuffix(".py") for name in files}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            if node.level:
                raise UsageError(
                    f"app {app!r}: {path}:{node.lineno} imports relative to a package, which is not supported: "
                    "the file is sent alone; import the neighbour by its plain name and include it"
                )
            names = [node.module or ""]
        for top in {name.split(".")[0]: None for name in names}:
            for neighbour in (f"{top}.py", top):
                beside = os.path.join(folder, neighbour)
                is_there = os.path.isfile(beside) if neighbour.endswith(".py") else os.path.isdir(beside)
                if is_there and top not in tops and os.path.abspath(path) != beside and _comes_from(top, beside):
                    raise UsageError(
                        f"app {app!r}: {path}:{node.lineno} imports {top}, a neighbour that is not sent along; "
                        f"say App({app!r}, include=[{neighbour!r}])"
                    )


def _comes_from(module: str, beside: str) -> bool:
    """Return whether an import finds the file beside the app, and not a library of that name."""
    import sys

    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", [])), None)
    return origin is None or os.path.abspath(origin).startswith(beside)


def zip_files(files: dict[str, bytes]) -> str:
    """Zip files and encode them in base64. The same files give the same bytes, because a digest detects changes."""
    from base64 import b64encode
    from io import BytesIO
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, content in files.items():
            entry = ZipInfo(name.replace(os.sep, "/"))  # without the current date
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, ZIP_DEFLATED)
    return b64encode(packed.getvalue()).decode()


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
