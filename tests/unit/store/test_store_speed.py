"""The speed of the store in SQLite beside a busy event loop.

`python tests/unit/store/test_store_speed.py [RATE [BUSY [SWITCH_INTERVAL_MS]]]` prints the figures. The test only
checks that it runs and that groups form.
"""

import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

from aliquot.live.store import SqliteStore
from aliquot.live.store.records import Accepted, Activation

SUMMARY, RESPONSE, STEP = b"s" * 400, b"r" * 100, b"j" * 300
TURN_S = 0.001
AWAITED_PER_S = 100


def new_id():
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


def work(seconds):
    """Run plain Python, which holds the interpreter lock."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(200))


async def accept_now_and_then(store, latencies):
    while True:
        begin = time.perf_counter()
        await store.accept(Accepted(new_id(), "ns", "f", 0, b"{}"))
        latencies.append(time.perf_counter() - begin)
        await asyncio.sleep(1 / AWAITED_PER_S)


async def measure(directory, *, rate, busy, seconds):
    """Write `rate` records with a journal step per second. The loop spends the fraction `busy` on other work."""
    store = await SqliteStore.open(directory)
    store.open_segment(b"snapshot")
    latencies = []
    accepting = [asyncio.create_task(accept_now_and_then(store, latencies)) for _ in range(4)]
    written, on_loop_s, begin = 0, 0.0, time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        due = int((now - begin) * rate) - written
        records = [Activation(new_id(), f"ns{n % 3}", f"f{n % 20}", n, n, SUMMARY, RESPONSE, b"[]") for n in range(due)]
        before = time.perf_counter()
        for record in records:
            store.record(record)
            store.journal(STEP)
        on_loop_s += time.perf_counter() - before
        written += due
        work(TURN_S * busy)
        await asyncio.sleep(TURN_S * (1 - busy))
    await store.flush()
    took_s = time.perf_counter() - begin
    for task in accepting:
        task.cancel()
    await asyncio.gather(*accepting, return_exceptions=True)
    commits = store.commits
    await store.close()
    latencies.sort()
    return {
        "calls/s": written / took_s,
        "calls/commit": written / commits,
        "us on the loop/call": on_loop_s / max(1, written) * 1e6,
        "durable p50 ms": latencies[len(latencies) // 2] * 1e3,
        "durable p99 ms": latencies[len(latencies) * 99 // 100] * 1e3,
    }


def test_a_busy_loop_writes_in_groups(tmp_path):
    figures = asyncio.run(measure(tmp_path, rate=10_000, busy=0.5, seconds=0.5))
    assert figures["calls/commit"] > 5


if __name__ == "__main__":
    rate, busy, switch_ms = [float(word) for word in (*sys.argv[1:], *("10000", "0.9", "5")[len(sys.argv) - 1 :])]
    sys.setswitchinterval(switch_ms / 1000)
    with tempfile.TemporaryDirectory() as directory:
        for name, value in asyncio.run(measure(Path(directory), rate=rate, busy=busy, seconds=5)).items():
            print(f"{name:>20} {value:10.2f}")  # noqa: T201 - a program too
