"""Totals of what actions have used, by day. They are added up from activation records, and stay when these go.

Records are added up some hundred at a time, and before any is deleted. The number of the last record that is in the
totals is written in the same transaction. So a crash loses nothing and counts nothing twice, and a reader adds the
records that are not in the totals yet.
"""

import sqlite3
from typing import NamedTuple

DAY_MS = 86_400_000
SUM_AFTER_ROWS = 512  # records that wait, before the writer adds them up
MAX_STEP_ROWS = 2048  # records in one step, so that writes do not wait for long


class BillRow(NamedTuple):
    """The use of one action on one day, UTC. Runs of a batch are divided among its calls."""

    day: int  # since the epoch
    owner: str
    action: str
    calls: int
    run_s: float
    device_s: float  # run time x share of a device
    byte_s: float  # run time x device memory


def _number(annotation: str) -> str:
    """Return the SQL for the number in an annotation, 0 if there is none. No text in a record has such quotes."""
    key = f'"{annotation}","value":'
    found = f"instr(summary, '{key}')"
    return f"CASE {found} WHEN 0 THEN 0.0 ELSE CAST(substr(summary, {found} + {len(key)}, 24) AS REAL) END"


_SUMS = f"""
    SELECT end_ms / {DAY_MS} AS day, namespace, name, count(*) AS calls, total(run_ms / size) / 1000 AS run_s,
        total(device_s / size) AS device_s, total(byte_s / size) AS byte_s
    FROM (
        SELECT end_ms, namespace, name, {_number("deviceTime")} AS run_ms, {_number("deviceSeconds")} AS device_s,
            {_number("byteSeconds")} AS byte_s, max(1, {_number("batchSize")}) AS size
        FROM (SELECT end_ms, namespace, name, CAST(summary AS TEXT) AS summary FROM activation
              WHERE seq > ?1 AND seq <= ?2)
        WHERE instr(summary, '"deviceTime","value":')
    ) GROUP BY 1, 2, 3
"""  # noqa: S608 - our own names
_ADD = f"""
    INSERT INTO bill (day, namespace, name, calls, run_s, device_s, byte_s) {_SUMS}
    ON CONFLICT (day, namespace, name) DO UPDATE SET calls = calls + excluded.calls, run_s = run_s + excluded.run_s,
        device_s = device_s + excluded.device_s, byte_s = byte_s + excluded.byte_s
"""
_READ = f"""
    SELECT day, namespace, name, sum(calls), sum(run_s), sum(device_s), sum(byte_s)
    FROM (SELECT * FROM bill UNION ALL SELECT * FROM ({_SUMS})) WHERE day >= ?3
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""  # noqa: S608


def last_billed(connection: sqlite3.Connection) -> int:
    """Return the number of the last record that is in the totals."""
    (seq,) = connection.execute("SELECT seq FROM billed").fetchone()
    return int(seq)


def add_up(connection: sqlite3.Connection) -> int:
    """Add the next records to the totals, in one transaction. Return the number of the last record in them."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        begin = last_billed(connection)
        (newest,) = execute("SELECT ifnull(max(seq), 0) FROM activation").fetchone()
        end = max(begin, min(newest, begin + MAX_STEP_ROWS))
        execute(_ADD, (begin, end))
        execute("UPDATE billed SET seq = ?", (end,))
        execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            execute("ROLLBACK")
        raise
    return int(end)


def read_bill(connection: sqlite3.Connection, first_day: int) -> list[BillRow]:
    """Return the totals from a day on, with the records that are not in them yet."""
    bounds = (last_billed(connection), 2**62, first_day)
    return [BillRow(*row) for row in connection.execute(_READ, bounds)]
