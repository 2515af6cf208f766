"""Read the code and the limits of an action from the command line: a file, a zip or a folder."""

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from aliquot.core.errors import InputError

PYTHON, NODEJS = "python:3.11", "nodejs:20"
_KINDS = {".py": PYTHON, ".js": NODEJS, ".cjs": NODEJS, ".mjs": NODEJS}
_ZIP = b"PK\x03\x04"
_TAKES = f"it takes {PYTHON} or {NODEJS}"
_SKIPPED = {"__pycache__", ".git"}

Kind: TypeAlias = Annotated[
    str | None,
    typer.Option(help=f"The runtime: {PYTHON} or {NODEJS}.", show_default="found from the file's ending or contents"),
]
Main: TypeAlias = Annotated[str | None, typer.Option(help="The function to call.", show_default="main")]
Memory: TypeAlias = Annotated[
    str | None, typer.Option("--memory", "-m", help="The host memory that it needs, such as 512MiB.")
]
Timeout: TypeAlias = Annotated[
    str | None, typer.Option("--timeout", "-t", help="The time limit of a run, such as 30s.")
]


def read_exec(path: Path, kind: str | None, main: str | None) -> dict[str, Any]:
    """Read the code of an action from a file, a zip, or a folder, which is zipped."""
    content, found = _read(path)
    chosen = kind or found
    if chosen is None:
        raise InputError(f"--kind: the ending of {path} does not tell; {_TAKES}")
    return {"kind": chosen, "code": content, **({} if main is None else {"main": main})}


def read_limits(
    timeout: str | None, memory: str | None, logs: str | None = None, concurrency: int | None = None
) -> dict[str, int]:
    """Return the given limits. A number without a unit means milliseconds or megabytes, as for `wsk`."""
    from aliquot.sdk.units import read_mib, read_ms

    limits = {}
    if timeout is not None:
        limits["timeout"] = int(timeout) if timeout.isdecimal() else read_ms(timeout, "--timeout")
    if memory is not None:
        limits["memory"] = int(memory) if memory.isdecimal() else read_mib(memory, "--memory")
    if logs is not None:
        limits["logs"] = int(logs) if logs.isdecimal() else read_mib(logs, "--logs")
    if concurrency is not None:
        limits["concurrency"] = concurrency
    return limits


def _read(path: Path) -> tuple[str, str | None]:
    """Return the code as it is sent, and its kind if that can be found out."""
    from base64 import b64encode

    if path.is_dir():
        return _pack(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if content.startswith(_ZIP):
        return b64encode(content).decode(), _kind_inside(_names(content))
    try:
        return content.decode(), _KINDS.get(path.suffix.lower())
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is neither text in UTF-8 nor a zip: {error}") from error


def _pack(folder: Path) -> tuple[str, str | None]:
    from aliquot.sdk.source import zip_files

    files: dict[str, bytes] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(inner for inner in folders if inner not in _SKIPPED)
        for name in sorted(names):
            path = Path(root, name)
            try:
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
            except OSError as error:
                raise InputError(f"{path} cannot be read: {error.strerror}") from error
    kind = _kind_inside(list(files))
    if kind is None:
        raise InputError(f"{folder}: the folder has no __main__.py (Python), package.json or index.js (Node.js) in it")
    return zip_files(files), kind


def _names(content: bytes) -> list[str]:
    from io import BytesIO
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(BytesIO(content)) as archive:
            return archive.namelist()
    except BadZipFile:
        return []  # the platform will say what is wrong with it


def _kind_inside(names: list[str]) -> str | None:
    if "__main__.py" in names:
        return PYTHON
    return NODEJS if {"package.json", "index.js"} & set(names) else None
