"""Explain SQLite's errors: to the operator with paths and advice, to tenants without."""

import sqlite3
from pathlib import Path

from aliquot.live.store.base import StoreError

PRIMARY = 0xFF  # an extended result code has the primary one in its low byte


def explain(error: Exception, path: Path) -> str:
    """Return one line that says what is wrong and what to do."""
    code = getattr(error, "sqlite_errorcode", None)
    detail = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if code is None:
        return f"{path}: {error} ({detail})"
    match code & PRIMARY:
        case sqlite3.SQLITE_FULL:
            return f"the disk is full: {path} cannot grow; free space on the file system of {path.parent}"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"{path} is locked by another process; end what has it open (`fuser {path}` names it)"
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"{path} is damaged ({error}); move it away to begin anew, or bring back a copy of it"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return f"{path} cannot be written ({error}); the file and {path.parent} must belong to this user"
        case sqlite3.SQLITE_CANTOPEN:
            return f"{path} cannot be opened; {path.parent} must be there and writable by this user"
        case sqlite3.SQLITE_IOERR:
            return f"the disk fails: {error} ({detail}) at {path}; is there room, and is it healthy?"
        case _:
            return f"{path}: {error} ({detail})"


def public_reason(error: Exception) -> str:
    """Return one line for tenants. It names no path, because the machine's files are not theirs to know."""
    code = getattr(error, "sqlite_errorcode", 0)
    match code & PRIMARY:
        case sqlite3.SQLITE_FULL:
            return "the platform's disk is full; try again later"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "the platform's store is locked; try again later"
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return "the platform's store is damaged; tell the operator"
        case _:
            return "the platform cannot use its store; try again later"


def as_store_error(error: Exception, path: Path) -> StoreError:
    return error if isinstance(error, StoreError) else StoreError(explain(error, path), public_reason(error))
