"""The bill: totals of days are added up from records, and stay when these go."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace
from stored import activation, opened

from aliquot.cli.bill import print_bill
from aliquot.core.errors import InputError
from aliquot.live.store import Retention
from aliquot.live.store.bills import DAY_MS, SUM_AFTER_ROWS, read_bill
from aliquot.live.usage.bill import bill_lines
from aliquot.testing.waiting import wait_on_loop


def used(number, *, day=0, run_ms=500.0, **annotations):
    noted = {"reason": 'said "deviceSeconds","value":99', "deviceTime": run_ms, **annotations}
    pairs = [{"key": key, "value": value} for key, value in noted.items()]
    summary = json.dumps({"annotations": pairs}, separators=(",", ":")).encode()
    return replace(activation(number, start=day * DAY_MS), summary=summary)


def bill(path, first_day=0):
    with closing(sqlite3.connect(path / "aliquot.db")) as connection:
        return [tuple(row) for row in read_bill(connection, first_day)]


def totals_in_file(path):
    with closing(sqlite3.connect(path / "aliquot.db")) as connection:
        return connection.execute("SELECT ifnull(sum(calls), 0) FROM bill").fetchone()[0]


def test_calls_are_summed_by_day_tenant_and_action(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            store.record(used(1, deviceSeconds=0.25, byteSeconds=1000))
            store.record(used(2, deviceSeconds=0.25, byteSeconds=1000, batchSize=2))
            store.record(used(3, day=1))
            store.record(replace(used(4, day=1), owner="other"))
            store.record(activation(5))  # of a trigger, say, which has no run
            await store.flush()

    asyncio.run(scenario())
    first, *rest = bill(tmp_path)
    assert first == (0, "ns", "f", 2, 0.75, 0.375, 1500.0)
    assert [row[:4] for row in rest] == [(1, "ns", "f", 1), (1, "other", "f", 1)]
    assert bill(tmp_path, first_day=1) == rest


def test_totals_stay_when_records_are_deleted_and_nothing_counts_twice(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(10):
                store.record(used(number))
            await store.flush()
            assert totals_in_file(tmp_path) == 0
            before = bill(tmp_path)
            await store.prune(Retention(activations_s=1), now_ms=30 * DAY_MS)
            assert totals_in_file(tmp_path) == 10
            assert bill(tmp_path) == before
        async with opened(tmp_path) as store:
            store.record(used(10))  # the numbers of deleted records are not used again
            await store.flush()

    asyncio.run(scenario())
    assert [row[3] for row in bill(tmp_path)] == [11]


def test_records_that_no_total_has_after_a_crash_are_added(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(20):
                store.record(used(number))
            await store.flush()

    asyncio.run(scenario())
    with closing(sqlite3.connect(tmp_path / "aliquot.db")) as connection, connection:
        connection.execute("INSERT INTO bill SELECT 0, 'ns', 'f', 5, 2.5, 0, 0")
        connection.execute("UPDATE billed SET seq = 5")
    assert [row[3:5] for row in bill(tmp_path)] == [(20, 10.0)]


def test_the_writer_adds_records_up_by_itself(tmp_path):
    async def scenario():
        async with opened(tmp_path) as store:
            for number in range(SUM_AFTER_ROWS):
                store.record(used(number))
            await store.flush()
            await wait_on_loop(lambda: totals_in_file(tmp_path) == SUM_AFTER_ROWS, what="the totals")

    asyncio.run(scenario())
    assert [row[3] for row in bill(tmp_path)] == [SUM_AFTER_ROWS]


def test_the_command_prints_totals_and_days(tmp_path, capsys):
    async def scenario():
        async with opened(tmp_path) as store:
            for day in (0, 1):
                store.record(used(day, day=day, deviceSeconds=1.5, byteSeconds=2**30))
            await store.flush()

    asyncio.run(scenario())
    (line,) = bill_lines(tmp_path, 0, by_day=False)
    assert (line.tenant, line.action, line.calls, line.device_seconds) == ("ns", "f", 2, 3.0)
    print_bill(tmp_path, "/ns/f", "all", by_day=True, as_json=False)
    printed = capsys.readouterr().out
    assert "1970-01-01" in printed
    assert "1970-01-02" in printed
    print_bill(tmp_path, "g", "all", by_day=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == []
    with pytest.raises(InputError, match="there is no store"):
        bill_lines(tmp_path / "none", 0, by_day=False)
