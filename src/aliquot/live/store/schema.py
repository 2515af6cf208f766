"""The database file: its tables, its versions, and how a connection to it is made."""

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from aliquot.core.units import MIB
from aliquot.live.store.base import StoreError
from aliquot.live.store.trouble import as_store_error

FILE_NAME = "aliquot.db"
APPLICATION_ID = 0x416C6971  # "Aliq": `file` and we can tell whose it is

# Each script takes the file one version further; what is released is never edited, the next one is appended.
# NOT NULL matters beyond tidiness: `batch.py` pads statements with rows of NULLs, which OR IGNORE passes over.
MIGRATIONS = (
    """
    CREATE TABLE document (
        collection TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (collection, namespace, name)
    );
    CREATE TABLE activation (
        seq INTEGER PRIMARY KEY,  -- in the order of recording
        id TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, name TEXT NOT NULL,
        start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, bytes INTEGER NOT NULL,
        summary BLOB NOT NULL, response BLOB NOT NULL, logs BLOB NOT NULL, pickled BLOB
    );
    -- Both orders in which lists are read; the first also holds all that the sum of the bytes needs.
    CREATE INDEX activation_by_start ON activation (namespace, start_ms, seq, bytes);
    CREATE INDEX activation_by_name ON activation (namespace, name, start_ms, seq);
    CREATE TABLE queue (
        seq INTEGER PRIMARY KEY,  -- in the order of acceptance
        id TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, name TEXT NOT NULL, accepted_ms INTEGER NOT NULL,
        payload BLOB NOT NULL, pickled INTEGER NOT NULL, rerun INTEGER NOT NULL, started INTEGER NOT NULL
    );
    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY,
        segment INTEGER NOT NULL, first INTEGER NOT NULL, entries INTEGER NOT NULL, written_ms INTEGER NOT NULL,
        lengths BLOB NOT NULL, bodies BLOB NOT NULL,  -- one row holds all entries of one commit
        UNIQUE (segment, first)
    );
    """,
    """
    ALTER TABLE queue ADD COLUMN cause TEXT NOT NULL DEFAULT '';
    ALTER TABLE queue ADD COLUMN session TEXT NOT NULL DEFAULT '';
    """,
    """
    ALTER TABLE activation ADD COLUMN session TEXT;
    -- Most records have none, and cost this index nothing.
    CREATE INDEX activation_by_session ON activation (namespace, session, start_ms, seq) WHERE session IS NOT NULL;
    """,
    """
    -- Of bodies that are too large for a row: see `pieces.py`.
    CREATE TABLE piece (
        id TEXT NOT NULL, kind INTEGER NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (id, kind, number)
    );
    CREATE TRIGGER activation_pieces AFTER DELETE ON activation WHEN OLD.bytes > 1048576
        BEGIN DELETE FROM piece WHERE id = OLD.id AND kind > 0; END;
    CREATE TRIGGER queue_pieces AFTER DELETE ON queue WHEN length(OLD.payload) = 0
        BEGIN DELETE FROM piece WHERE id = OLD.id AND kind = 0; END;
    """,
)
VERSION = len(MIGRATIONS)

CACHE_KIB = 16 * 1024
WAL_LIMIT_BYTES = 64 * MIB


def locate(path: Path) -> Path:
    """The database file that a data directory or a file stands for."""
    return path / FILE_NAME if path.is_dir() else path


def prepare(path: Path) -> Path:
    """The same for a server, which makes the directory if it must. Raises `StoreError`."""
    file = path if path.suffix == ".db" else path / FILE_NAME
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{file.parent} cannot be made ({error.strerror}); choose another data directory") from error
    return file


def connect_writer(path: Path, *, busy_ms: int) -> sqlite3.Connection:
    """The one connection that writes, with the file made or brought to this version. Raises `StoreError`."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False)
        _check(connection, path)
        # Before anything else: pages can be given back later only in a file that was made so.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{path}: the file system cannot hold a write-ahead log; choose a local disk")  # noqa: TRY301
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        # The writer moves the log itself, after it has told those who wait.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        _migrate(connection)
    except (sqlite3.Error, StoreError) as error:
        if connection is not None:
            connection.close()
        raise as_store_error(error, path) from error
    return connection


def connect_reader(path: Path, *, busy_ms: int) -> sqlite3.Connection:
    """A connection that cannot write; the file must be there. Raises `StoreError`."""
    connection: sqlite3.Connection | None = None
    # Even a reader keeps a note of its place beside the file. Where it cannot, and no log is there, nobody writes.
    alone = not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if alone else ""),
            uri=True, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        if _check(connection, path) == 0:
            raise StoreError(f"{path} is not a database of Aliquot")  # noqa: TRY301
    except (sqlite3.Error, StoreError) as error:
        if connection is not None:
            connection.close()
        raise as_store_error(error, path) from error
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file, 0 for a new one."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program; choose another data directory")
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer Aliquot (version {version} of the file, this one knows {VERSION}); "
            "install that one, or choose another data directory"
        )
    return int(version)


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {number}; COMMIT"
        )
