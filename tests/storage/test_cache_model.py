"""Any sequence of opens, reads, changes, outages, deletions and restarts: a handle reads one version, bytes add up."""

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from scripted_origin import CHUNK, SOON_S, ScriptedOrigin, key, until

from aliquot.policies.eviction import EVICTION
from aliquot.storage.cache import CacheSettings, NodeCache, Urgency
from aliquot.storage.cache.transfers import failures
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, RoomError

PATHS = ("a", "b", "deep/c", "deep/d")
LIMIT = 12 * CHUNK


@pytest.fixture(scope="module", autouse=True)
def _retries_without_waiting():
    """Retry without waiting."""
    before, failures.RETRY_S = failures.RETRY_S, (0.0, 0.0, 0.0)
    yield
    failures.RETRY_S = before


class Model(RuleBasedStateMachine):
    handles = Bundle("handles")

    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="cache-model-"))
        self.origin = ScriptedOrigin({})
        self.versions = {path: [] for path in PATHS}  # all versions so far, the newest last
        self.opened = []
        self.numbers = iter(range(1_000_000))

    @initialize(eviction=st.sampled_from(sorted(EVICTION)))
    def begin(self, eviction):
        self.eviction = eviction
        self.start()

    def start(self):
        options = CacheSettings(
            LIMIT, self.eviction, chunk_bytes=CHUNK, whole_bytes=5 * CHUNK, workers=3, revalidate_s=0.0, relist_s=0.0
        )
        self.cache = NodeCache(self.directory, options, lambda _: self.origin)

    def teardown(self):
        self.cache.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @rule(path=st.sampled_from(PATHS), size=st.integers(0, 15 * CHUNK), zeros=st.booleans())
    def write(self, path, size, zeros):
        seed = next(self.numbers)
        data = random.Random(seed).randbytes(size)
        if zeros and size > 2 * CHUNK:
            data = data[:CHUNK] + bytes(size - 2 * CHUNK) + data[-CHUNK:]
        self.origin.contents[path] = data
        self.versions[path].append(data)

    @rule(path=st.sampled_from(PATHS))
    def delete(self, path):
        self.origin.contents.pop(path, None)

    @rule()
    def outage(self):
        until(lambda: not self.cache._requests.listings._running)  # a later listing would get its error
        self.origin.down = not self.origin.down

    @rule(ranged=st.booleans())
    def ranges(self, ranged):
        self.origin.is_ranged = ranged

    @rule(target=handles, path=st.sampled_from(PATHS))
    def open(self, path):
        try:
            handle = self.cache.open(key(path)).result(SOON_S)
        except (AbsentError, OriginError, RoomError) as error:
            self.excused(path, error)
            return multiple()
        now = self.origin.contents.get(path)
        content = next(data for data in reversed(self.versions[path]) if len(data) == handle.listed.size)
        if not self.origin.down:
            assert content == now
        candidates = [data for data in self.versions[path] if len(data) == handle.listed.size]
        self.opened.append(handle)
        return (handle, path, candidates)

    def excused(self, path, error):
        if isinstance(error, AbsentError):
            assert path not in self.origin.contents
        elif isinstance(error, OriginError):
            assert self.origin.down
        else:
            assert not self.origin.is_ranged or len(self.origin.contents[path]) > LIMIT or self.opened

    @rule(opened=handles, data=st.data())
    def read(self, opened, data):
        handle, _path, candidates = opened
        offset = data.draw(st.integers(0, handle.listed.size + 10))
        length = data.draw(st.integers(0, 3 * CHUNK))
        try:
            found = handle.read(offset, length).result(SOON_S)
        except ValueError:
            assert handle not in self.opened
        except (ChangedError, AbsentError, OriginError, RoomError):
            assert handle.fd is None
        else:
            # All reads of a handle are of one version, so that each read rules out those that do not match.
            candidates[:] = [content for content in candidates if content[offset : offset + length] == found]
            assert candidates

    @rule(opened=consumes(handles))
    def close(self, opened):
        handle, _, _ = opened
        handle.close()
        self.opened = [other for other in self.opened if other is not handle]

    @rule(path=st.sampled_from(PATHS), urgency=st.sampled_from(Urgency), cancel=st.booleans())
    def fetch(self, path, urgency, cancel):
        future = self.cache.fetch(key(path), urgency=urgency)
        if cancel and future.cancel():
            return
        try:
            assert future.result(SOON_S).listed.path == path
        except (AbsentError, OriginError) as error:
            self.excused(path, error)
        except RoomError:
            pass

    @rule()
    def remove(self):
        self.cache.remove("d")

    @rule()
    def empty(self):
        self.cache.empty()

    @rule()
    def listing(self):
        try:
            self.cache.listing("d")
        except OriginError:
            assert self.origin.down

    @rule()
    def wipe(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    @rule(torn=st.booleans())
    def restart(self, torn):
        for handle in self.opened:
            handle.close()
        self.opened = []
        self.cache.close()
        index = self.directory / "index"
        if torn and index.exists():
            index.write_bytes(index.read_bytes()[:-7])
        self.start()

    @invariant()
    def the_bytes_add_up(self):
        machine, space = self.cache._machine, self.cache._machine.space
        with self.cache._requests.decide(wakes_workers=True):
            held = {id(handle.entry): handle.entry for handle in self.opened}
            entries = {**{id(entry): entry for entry in space.entries.values()}, **held}
            busy = [transfer.entry for transfer in machine.transfers.values() if transfer.entry is not None]
            entries |= {id(entry): entry for entry in busy}
            assert space.used_bytes == sum(entry.disk_bytes + entry.reserved_bytes for entry in entries.values())
            assert 0 <= space.used_bytes <= LIMIT
            idle = [entry for entry in space.entries.values() if entry.idle]
            assert space._idle_bytes == sum(entry.disk_bytes for entry in idle)
            assert all(entry.pins == 0 and not entry.busy for entry in idle)
            assert machine.stats().open == len(self.opened)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=30)
