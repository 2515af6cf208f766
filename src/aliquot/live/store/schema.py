"""The database file: its tables, its migrations, and connections to it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from aliquot.core.units import MIB
from aliquot.live.store.base import StoreError
from aliquot.live.store.sqlite_errors import as_store_error

FILE_NAME = "aliquot.db"
APPLICATION_ID = 0x416C6971  # "Aliq", by which the command `file` and this module recognise the file

# Each script migrates the file to the next version. Released scripts are never edited, new ones are appended.
# The NOT NULL constraints are needed: `batch.py` pads statements with rows of NULLs, which OR IGNORE skips.
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
    -- The two orders of lists. The first index also covers the sum of the bytes.
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
    -- Most records have no session, and are not in this index.
    CREATE INDEX activation_by_session ON activation (namespace, session, start_ms, seq) WHERE session IS NOT NULL;
    """,
    """
    -- Bodies that are too large for a row, see `large_bodies.py`.
    CREATE TABLE piece (
        id TEXT NOT NULL, kind INTEGER NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (id, kind, number)
    );
    CREATE TRIGGER activation_pieces AFTER DELETE ON activation WHEN OLD.bytes > 1048576
        BEGIN DELETE FROM piece WHERE id = OLD.id AND kind > 0; END;
    CREATE TRIGGER queue_pieces AFTER DELETE ON queue WHEN length(OLD.payload) = 0
        BEGIN DELETE FROM piece WHERE id = OLD.id AND kind = 0; END;
    """,
    """
    ALTER TABLE queue ADD COLUMN starts INTEGER NOT NULL DEFAULT 0;
    """,
    """
    -- From here on the column `namespace` of activations and of the queue has `Namespace.owner`. Namespaces that exist
    -- keep their name as owner. What is older than they are belongs to an earlier namespace of the same name.
    UPDATE activation SET namespace = namespace || ':earlier' WHERE start_ms < (
        SELECT json_extract(CAST(body AS TEXT), '$.created') FROM document
        WHERE collection = 'namespaces' AND document.namespace = activation.namespace
    );
    UPDATE queue SET namespace = namespace || ':earlier' WHERE accepted_ms < (
        SELECT json_extract(CAST(body AS TEXT), '$.created') FROM document
        WHERE collection = 'namespaces' AND document.namespace = queue.namespace
    );
    -- The body of a fired event. The calls that it causes refer to it, and the last of them deletes it.
    CREATE TABLE event (id TEXT NOT NULL PRIMARY KEY, body BLOB NOT NULL);
    ALTER TABLE queue ADD COLUMN event TEXT NOT NULL DEFAULT '';
    CREATE INDEX queue_by_event ON queue (event) WHERE event != '';
    CREATE TRIGGER queue_event AFTER DELETE ON queue WHEN OLD.event != ''
        BEGIN DELETE FROM event WHERE id = OLD.event
            AND NOT EXISTS (SELECT 1 FROM queue WHERE event != '' AND event = OLD.event); END;
    """,
    """
    -- Definitions of workflows by their digest, and executions with the logs of their events.
    CREATE TABLE definition (digest TEXT NOT NULL PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE execution (
        seq INTEGER PRIMARY KEY,  -- in the order of starts
        id TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, workflow TEXT NOT NULL, name TEXT NOT NULL,
        digest TEXT NOT NULL, status TEXT NOT NULL, start_ms INTEGER NOT NULL, end_ms INTEGER,
        body BLOB NOT NULL, outcome BLOB NOT NULL
    );
    CREATE INDEX execution_by_start ON execution (namespace, start_ms, seq);
    CREATE INDEX execution_by_workflow ON execution (namespace, workflow, start_ms, seq);
    CREATE INDEX execution_by_name ON execution (namespace, workflow, name) WHERE name != '';
    CREATE INDEX execution_by_digest ON execution (digest);
    CREATE INDEX execution_open ON execution (namespace, seq) WHERE status = 'RUNNING';
    CREATE TABLE execution_event (
        execution TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (execution, number)
    ) WITHOUT ROWID;
    CREATE TABLE timer (execution TEXT NOT NULL PRIMARY KEY, due REAL, busy INTEGER NOT NULL);
    -- An execution goes with its record, as a whole.
    CREATE TRIGGER activation_execution AFTER DELETE ON activation
        BEGIN DELETE FROM execution WHERE id = OLD.id AND status != 'RUNNING'; END;
    CREATE TRIGGER execution_log AFTER DELETE ON execution BEGIN
        DELETE FROM execution_event WHERE execution = OLD.id;
        DELETE FROM timer WHERE execution = OLD.id;
        DELETE FROM definition WHERE digest = OLD.digest
            AND NOT EXISTS (SELECT 1 FROM execution WHERE digest = OLD.digest);
    END;
    """,
    """
    -- Objects that JSON cannot hold, in pieces. An execution that succeeds removes its own, others go with the log.
    CREATE TABLE execution_object (
        execution TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (execution, id, number)
    );
    CREATE TRIGGER execution_objects AFTER DELETE ON execution
        BEGIN DELETE FROM execution_object WHERE execution = OLD.id; END;
    """,
    """
    -- Totals by day, see `bills.py`, and the number of the last record that is in them.
    CREATE TABLE bill (
        day INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, calls INTEGER NOT NULL,
        run_s REAL NOT NULL, device_s REAL NOT NULL, byte_s REAL NOT NULL, PRIMARY KEY (day, namespace, name)
    ) WITHOUT ROWID;
    CREATE TABLE billed (seq INTEGER NOT NULL);
    INSERT INTO billed VALUES (0);
    """,
)
VERSION = len(MIGRATIONS)

CACHE_KIB = 16 * 1024
WAL_LIMIT_BYTES = 64 * MIB

_MAGIC = b"SQLite format 3\0"
_HEAD_BYTES = 100  # the header of a database file
_WAL_HEAD_BYTES, _FRAME_HEAD_BYTES = 32, 24  # of its write-ahead log
_BEGIN_ANEW = "bring back a copy of it, or move it away to begin anew without namespaces, functions and records"


def locate(path: Path) -> Path:
    """Return the database file of a data directory, or the path itself if it is a file."""
    return path / FILE_NAME if path.is_dir() else path


def prepare(path: Path) -> Path:
    """Return the database file for a server, and create its directory. Raises `StoreError`."""
    file = path if path.suffix == ".db" else path / FILE_NAME
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{file.parent} cannot be made ({error.strerror}); choose another data folder") from error
    return file


def connect_writer(path: Path, *, busy_ms: int) -> sqlite3.Connection:
    """Open the only writing connection. Create the file or migrate it to this version. Raises `StoreError`."""
    connection: sqlite3.Connection | None = None
    try:
        if path.exists():
            _check_size(path)
        else:
            _create(path)
        connection = sqlite3.connect(path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False)
        _check(connection, path)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(f"{path}: the file system cannot hold a write-ahead log; choose a local disk")  # noqa: TRY301
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        # `BatchWriter.checkpoint` moves the log, after callers have their results.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.executescript("BEGIN IMMEDIATE; ROLLBACK")  # raises if another process has locked the file
        _migrate(connection)
    except (sqlite3.Error, StoreError) as error:
        if connection is not None:
            connection.close()
        raise as_store_error(error, path) from error
    return connection


def connect_reader(path: Path, *, busy_ms: int) -> sqlite3.Connection:
    """Open a read-only connection to an existing file. Raises `StoreError`."""
    connection: sqlite3.Connection | None = None
    # A reader needs a shared-memory file beside the database. If the directory is read-only and has no log, the
    # database cannot change either, and is opened as immutable.
    immutable = not os.access(path.parent, os.W_OK) and not _beside(path, "-wal").exists()
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if immutable else ""),
            uri=True, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        _check(connection, path)
    except (sqlite3.Error, StoreError) as error:
        if connection is not None:
            connection.close()
        raise as_store_error(error, path) from error
    return connection


def _create(path: Path) -> None:
    """Create the file with all its tables under another name, and rename it.

    A file of the final name is therefore complete. If it is empty, somebody emptied it.
    """
    log, draft = _beside(path, "-wal"), _beside(path, "-new")
    try:
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{path} is missing, but its write-ahead log {log.name} is there; bring back the database, or move the "
                "log away, too, to begin anew"
            )
        for leftover in (draft, _beside(draft, "-journal")):
            leftover.unlink(missing_ok=True)
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            # Pages can be returned later only if the file was created with this setting.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _migrate(connection)
        draft.rename(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be made ({error.strerror}); choose another data folder") from error


def _check_size(path: Path) -> None:
    """Raise `StoreError` if the file is empty, or shorter than its header says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        log = _beside(path, "-wal")
        logged = log.stat().st_size if log.exists() else 0
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}); it must belong to this user") from error
    if size == 0:
        raise StoreError(f"{path} is empty: something has cut it to 0 bytes; {_BEGIN_ANEW}")
    if not head.startswith(_MAGIC):
        return  # SQLite says what is wrong
    page_bytes = int.from_bytes(head[16:18]) or 1
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    # The number of pages is valid if the counters of changes agree. Missing pages may still be in the log.
    pages = int.from_bytes(head[28:32]) if head[24:28] == head[92:96] else 0
    logged_pages = max(0, logged - _WAL_HEAD_BYTES) // (page_bytes + _FRAME_HEAD_BYTES)
    if len(head) < _HEAD_BYTES or size < (pages - logged_pages) * page_bytes:
        whole = f"{pages * page_bytes}" if pages else f"at least {_HEAD_BYTES}"
        raise StoreError(f"{path} is damaged: it was cut to {size} of {whole} bytes; {_BEGIN_ANEW}")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreError` for a file that is not usable."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program; choose another data folder")
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer Aliquot (version {version} of the file, this one knows {VERSION}); "
            "install that one, or choose another data folder"
        )
    if not tables or not version:
        raise StoreError(f"{path} has no tables: something has emptied it; {_BEGIN_ANEW}")


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {script}; PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {number}; COMMIT"
        )
