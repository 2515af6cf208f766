"""The log's SQLite file: its table, the conversion between rows and accesses, and how it is opened."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import structlog

from aliquot.storage.records import FileAccess, Found

VERSION = 2  # version 2 added the column user
_INCREMENTAL = 2
COLUMNS = "time_s, tenant, session, function, invocation, dataset, path, size, operation, waited_s, found, user"
INSERT = f"INSERT INTO accesses ({COLUMNS}) VALUES ({', '.join('?' * len(COLUMNS.split(',')))})"  # noqa: S608 - our own
Row = tuple[float, str, str, str, str, str, str, int, str, float, str, str]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS accesses (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, tenant TEXT NOT NULL, session TEXT NOT NULL,
    function TEXT NOT NULL, invocation TEXT NOT NULL, dataset TEXT NOT NULL, path TEXT NOT NULL,
    size INTEGER NOT NULL, operation TEXT NOT NULL, waited_s REAL NOT NULL, found TEXT NOT NULL,
    user TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX IF NOT EXISTS by_audience ON accesses (tenant, session, function, id);
"""
_log = structlog.get_logger(__name__)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing. A file that SQLite cannot read is renamed, and the log starts empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise  # locked, disk full or not permitted: the file itself is sound
        _log.error("the access log cannot be read and is set aside", path=str(path), error=str(error))
        os.replace(path, path.with_name(path.name + ".broken"))  # noqa: PTH105 - replaces an older one
        for rest in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + rest).unlink()
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # pruned pages go back to the disk
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # survives a crash; a power cut may lose the last groups
        _make(connection)
        connection.execute("SELECT max(id) FROM accesses").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def connect_memory() -> sqlite3.Connection:
    """Open a log in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _make(connection)
    return connection


def _make(connection: sqlite3.Connection) -> None:
    """Create or upgrade the table. An up-to-date file is not written to, because the disk may be full."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    _check_version(version)
    connection.executescript(_SCHEMA)
    if version != VERSION:
        _add_user(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _add_user(connection: sqlite3.Connection) -> None:
    """Add the column `user`, which version 1 did not have."""
    if "user" not in [column[1] for column in connection.execute("PRAGMA table_info(accesses)")]:
        connection.execute("ALTER TABLE accesses ADD COLUMN user TEXT NOT NULL DEFAULT ''")


def _check_version(found: int) -> None:
    if found > VERSION:
        raise sqlite3.DatabaseError(f"it was written by a newer version ({found}, this one reads {VERSION})")


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open the file for reading, without creating it. Raises `sqlite3.Error`."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=5)


def to_row(access: FileAccess) -> Row:
    return (
        access.time_s, access.tenant, access.session, access.function, access.invocation,
        access.dataset, access.path, access.size, access.operation, access.waited_s, access.found.value,
        access.user,
    )  # fmt: skip


def to_access(row: Row) -> FileAccess:
    return FileAccess(*row[:-2], Found(row[-2]), row[-1])  # the columns are in the order of the fields
