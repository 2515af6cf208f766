"""Log accesses: adding one costs a lock and an append. A thread writes them to SQLite in groups and prunes the file.

The last accesses of an audience are read from memory, or from the file after a restart. The log only serves learning.
If its disk is full or slow it drops accesses and counts them, and never delays an open.
"""

import sqlite3
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import structlog
from msgspec import Struct

from aliquot.core.prefetching.records import audience_of, function_of
from aliquot.core.units import MIB
from aliquot.storage.log.schema import COLUMNS, INSERT, Row, connect, connect_memory, connect_reader, to_access, to_row
from aliquot.storage.log.sessions import LoggedSession, split
from aliquot.storage.records import FileAccess

MAX_RECENT = 10  # accesses of an audience that a prediction uses
_GROUP_INTERVAL_S = 0.05  # accesses within it are written together
_MAX_WAITING = 100_000  # accesses not on disk yet; beyond this the oldest are dropped
_MAX_AUDIENCES = 4096  # audiences whose last accesses are kept in memory
_PRUNE_DIVISOR = 10  # pruning deletes a tenth of the rows, so that it is rare
_log = structlog.get_logger(__name__)


class LogLimits(Struct, frozen=True):
    """The maximum size of the log on disk."""

    bytes: int = 128 * MIB
    rows: int = 500_000


_IN_MEMORY = LogLimits(bytes=8 * MIB, rows=50_000)


class LogStats(Struct, frozen=True):
    """The current size of the log, and the accesses it has lost."""

    rows: int
    bytes: int
    lost: int  # accesses that were not written


class AccessLog:
    """The log of one node. Thread-safe. `close` writes the accesses that still wait."""

    def __init__(self, path: Path, limits: LogLimits = LogLimits()) -> None:  # noqa: B008 - frozen
        self.path = path
        self._limits = limits
        self._lock = threading.Lock()
        self._waiting: deque[Row] = deque()
        self._recent: OrderedDict[tuple[str, str], deque[FileAccess]] = OrderedDict()
        self._lost = 0
        self._added = self._written = 0
        self._wake = threading.Event()
        self._settled = threading.Condition(self._lock)
        self._closing = False
        self._connection = self._connect()
        self._rows: int = self._connection.execute("SELECT count(*) FROM accesses").fetchone()[0]
        self._thread = threading.Thread(target=self._write_groups, name="aliquot-access-log", daemon=True)
        self._thread.start()

    def add(self, access: FileAccess) -> None:
        """Add an access to memory now, and to the file soon."""
        key = (access.tenant, audience_of(access.session, access.function))
        with self._lock:
            recent = self._recent.get(key)
            if recent is None:  # not read from the file: an open waits for this call
                recent = self._remember(key, [])
            recent.append(access)
            self._recent.move_to_end(key)
            self._waiting.append(to_row(access))
            self._added += 1
            if len(self._waiting) > _MAX_WAITING:
                self._waiting.popleft()
                self._added -= 1
                self._lost += 1
        self._wake.set()

    @property
    def added(self) -> int:
        """The number of accesses added since the log was opened."""
        return self._added

    def recent(self, tenant: str, session: str, function: str = "", k: int = MAX_RECENT) -> list[FileAccess]:
        """Return the last accesses of a session, or of a function if the session is empty, oldest first.

        `session` may also be the name of an audience, `function/NAME`.
        """
        key = (tenant, audience_of(session, function))
        with self._lock:
            known = self._recent.get(key)
            if known is not None:
                self._recent.move_to_end(key)
                return list(known)[-k:]
        read = self._read_recent(tenant, session, function)
        with self._lock:
            known = self._recent.get(key)  # an open may have added to it meanwhile
            if known is None:
                known = self._remember(key, read)
            return list(known)[-k:]

    def forget(self, tenant: str, session: str) -> None:
        """Drop an ended session's last accesses from memory."""
        with self._lock:
            self._recent.pop((tenant, session), None)

    def sessions(self) -> Iterator[LoggedSession]:
        """Iterate over the sessions on disk, while the log is written."""
        return read_sessions(self.path)

    def flush(self) -> None:
        """Wait until everything added so far is on disk or dropped."""
        with self._settled:
            target = self._added
            self._wake.set()
            self._settled.wait_for(lambda: self._written >= target or not self._thread.is_alive())

    def stats(self) -> LogStats:
        size = sum(part.stat().st_size for part in self.path.parent.glob(self.path.name + "*") if part.exists())
        with self._lock:
            return LogStats(self._rows, size, self._lost)

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()
        with self._lock:
            self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        """Open the file, or keep the log in memory if that fails."""
        try:
            return connect(self.path)
        except (sqlite3.Error, OSError) as error:
            _log.warning("the access log cannot be opened; it starts empty, in memory", error=str(error))
            self._limits = LogLimits(min(self._limits.bytes, _IN_MEMORY.bytes), min(self._limits.rows, _IN_MEMORY.rows))
            return connect_memory()

    # --- memory -------------------------------------------------------------------------------------------

    def _remember(self, key: tuple[str, str], accesses: list[FileAccess]) -> deque[FileAccess]:
        while len(self._recent) >= _MAX_AUDIENCES:
            self._recent.popitem(last=False)
        known = self._recent[key] = deque(accesses, maxlen=MAX_RECENT)
        return known

    def _read_recent(self, tenant: str, session: str, function: str) -> list[FileAccess]:
        """Read from the file. Accesses not written yet belong to audiences that are in memory."""
        if not self._rows:
            return []
        where, values = "session = ?", (tenant, session)
        if (name := function_of(audience_of(session, function))) is not None:
            where, values = "session = '' AND function = ?", (tenant, name)
        query = f"SELECT {COLUMNS} FROM accesses WHERE tenant = ? AND {where} ORDER BY id DESC LIMIT {MAX_RECENT}"  # noqa: S608 - values are bound
        try:
            with closing(connect_reader(self.path)) as reader:
                return [to_access(row) for row in reader.execute(query, values)][::-1]
        except sqlite3.Error as error:
            _log.warning("the access log cannot be read", error=str(error))
            return []

    # --- the writer's thread ------------------------------------------------------------------------------

    def _write_groups(self) -> None:
        while True:
            self._wake.wait()
            if not self._closing:
                threading.Event().wait(_GROUP_INTERVAL_S)
            self._wake.clear()
            with self._lock:
                group, self._waiting = self._waiting, deque()
            if group:
                self._write(group)
            if self._closing and not self._waiting:
                return

    def _write(self, group: deque[Row]) -> None:
        written = 0
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(INSERT, group)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            written = len(group)
            self._prune(written)
        except sqlite3.Error as error:
            _log.warning("accesses could not be logged", accesses=len(group) - written, error=str(error))
        with self._settled:
            self._rows += written
            self._lost += len(group) - written
            self._written += len(group)
            self._settled.notify_all()

    def _prune(self, added: int) -> None:
        """Delete the oldest rows, a tenth at a time, until rows and bytes are within the limits."""
        pruned = False
        while (rows := self._rows + added) > self._limits.rows or self._bytes() > self._limits.bytes:
            oldest = self._connection.execute("SELECT min(id) FROM accesses").fetchone()[0]
            if oldest is None:
                return
            excess = max(rows // _PRUNE_DIVISOR, rows - self._limits.rows, 1)
            deleted = self._connection.execute("DELETE FROM accesses WHERE id < ?", (oldest + excess,)).rowcount
            self._rows -= deleted
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
            pruned = True
        if pruned:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _bytes(self) -> int:
        pages: int = self._connection.execute("PRAGMA page_count").fetchone()[0]
        size: int = self._connection.execute("PRAGMA page_size").fetchone()[0]
        return pages * size


def read_sessions(path: Path) -> Iterator[LoggedSession]:
    """Read the sessions of a log that another process may be writing. Raises `sqlite3.Error`."""
    with closing(connect_reader(path)) as reader:
        rows = reader.execute(f"SELECT {COLUMNS} FROM accesses ORDER BY id")  # noqa: S608 - our own
        yield from split(to_access(row) for row in rows)
