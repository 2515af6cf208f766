"""For any sequence of calls, restarts and locks, the store in SQLite answers like the one in memory."""

import asyncio
import shutil
import sqlite3
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from stored import accepted, activation, journal

from aliquot.live.store import ActivationQuery, Document, Retention, SqliteStore, StoreError
from aliquot.testing.store import MemoryStore

ids = st.integers(0, 12)
names = st.sampled_from(["f", "p/g"])
bodies = st.sampled_from([b"", b"x", b"y" * 5000])
maybe_time = st.none() | st.integers(0, 30)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.model = MemoryStore()
        self.lock = None
        self.next_record = 100

    def run(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def both(self, call):
        """Make the same call to both stores. Either both refuse it or none."""
        results = []
        for store in (self.model, self.store):
            try:
                results.append(self.run(call(store)))
            except StoreError:
                results.append(StoreError)
        assert results[0] == results[1]
        return results[0]

    @initialize()
    def open(self):
        self.store = self.run(SqliteStore.open(self.directory, busy_ms=0, gather_s=0.0005))
        self.segment_open = False

    @precondition(lambda self: self.lock is None)
    @rule()
    def restart(self):
        self.run(self.store.close())
        self.open()

    @precondition(lambda self: self.lock is None)
    @rule()
    def another_process_locks_the_file(self):
        self.run(self.store.flush())
        self.lock = sqlite3.connect(self.store.path, isolation_level=None)
        self.lock.execute("BEGIN IMMEDIATE")
        self.model.fail("locked")

    @precondition(lambda self: self.lock is not None)
    @rule()
    def it_lets_go(self):
        self.lock.close()
        self.lock = None
        self.model.fail(None)
        self.run(self.store.flush())
        assert self.store.health.problem is None

    @rule(name=names, body=bodies, collection=st.sampled_from(["action", "namespace"]))
    def put(self, collection, name, body):
        self.both(lambda store: store.put(collection, Document("ns", name, body)))

    @rule(name=names, collection=st.sampled_from(["action", "namespace"]))
    def delete(self, collection, name):
        self.both(lambda store: store.delete(collection, "ns", name))

    @rule(start=st.integers(0, 30), name=names, body=bodies)
    def record(self, start, name, body):
        self.next_record += 1
        for store in (self.model, self.store):
            store.record(activation(self.next_record, start=start, name=name, response=body))

    @rule(number=ids, rerun=st.booleans())
    def accept(self, number, rerun):
        self.both(lambda store: store.accept(accepted(number, rerun=rerun)))

    @rule(number=ids)
    def count_start(self, number):
        self.both(lambda store: store.count_start(f"{number:032x}"))

    @rule(number=ids)
    def forget_starts(self, number):
        self.both(lambda store: store.forget_starts(f"{number:032x}"))

    @rule(number=ids)
    def mark_started(self, number):
        self.both(lambda store: store.mark_started(f"{number:032x}"))

    @rule(number=ids, start=st.integers(0, 30), name=names, body=bodies)
    def finish(self, number, start, name, body):
        self.both(lambda store: store.finish(activation(number, start=start, name=name, response=body)))

    @rule(body=bodies)
    def open_segment(self, body):
        self.segment_open = True
        for store in (self.model, self.store):
            store.open_segment(body)

    @precondition(lambda self: self.segment_open)
    @rule(body=bodies)
    def journal(self, body):
        for store in (self.model, self.store):
            store.journal(body)

    @precondition(lambda self: self.lock is None)
    @rule()
    def flush(self):
        self.both(lambda store: store.flush())

    @rule()
    def time_passes(self):
        self.run(asyncio.sleep(0.001))

    @precondition(lambda self: self.lock is None)
    @rule(seconds=st.floats(0, 0.03), limit=st.integers(0, 20_000))
    def prune(self, seconds, limit):
        keep = Retention(activations_s=seconds, activations_bytes=limit, journal_bytes=10**9)
        self.both(lambda store: store.prune(keep, now_ms=31))

    @rule(name=st.none() | names, since=maybe_time, upto=maybe_time, skip=st.integers(0, 5), limit=st.integers(1, 5))
    def query(self, name, since, upto, skip, limit):
        query = ActivationQuery("ns", name, since, upto, skip, limit)
        self.both(lambda store: store.activations(query))
        self.both(lambda store: store.count_activations(query))

    @rule(number=ids)
    def read_one(self, number):
        self.both(lambda store: store.activation("ns", f"{number:032x}"))

    @invariant()
    def all_else_is_equal(self):
        self.both(lambda store: store.scan("action"))
        self.both(lambda store: store.scan("namespace"))
        self.both(lambda store: store.unfinished())

    def teardown(self):
        if self.lock is not None:
            self.it_lets_go()
        self.run(self.store.flush())
        assert self.run(journal(self.store)) == self.run(journal(self.model))
        self.both(lambda store: store.activations(ActivationQuery("ns", limit=1000)))
        self.run(self.store.close())
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()
        shutil.rmtree(self.directory)


class TestStoreMachine(StoreMachine.TestCase):
    settings = settings(max_examples=40, stateful_step_count=30)
