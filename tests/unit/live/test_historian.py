"""The historian over a real store: what it finds, what it leaves out, and journals that changed under its reader."""

import asyncio
import sqlite3

import msgspec
import pytest
from msgspec.structs import replace
from stored import opened

from aliquot.config import PolicySettings
from aliquot.core.events import InvocationArrived, RunFinished, SandboxStarted
from aliquot.core.units import GIB
from aliquot.live.history.historian.historian import Historian
from aliquot.live.history.messages import DecisionList, DeviceSlices, FunctionFigures, Search, SeriesOf, Viewer
from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.records import Activation
from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness

EPOCH_S = 1_700_000_000
OPERATOR = Viewer()


class RecordedHarness(Harness):
    """A scheduler whose steps are kept as a server would write them, with a new segment wherever `cut` is called."""

    def __init__(self, *arguments, **options):
        self.segments, self.count = [], 0
        self.clock_s = EPOCH_S  # what the machine's clock says at time 0
        super().__init__(*arguments, **options)

    def cut(self):
        head = snapshot.take(self.scheduler, PolicySettings("fcfs"), now_ms=round(1000 * (self.clock_s + self.now)))
        self.segments.append([head])

    def send(self, *events, at=None):
        if not self.segments:
            self.cut()
        commands = super().send(*events, at=at)
        self.segments[-1].append(msgspec.msgpack.encode(JournalStep(self.count, self.now, list(events), commands)))
        self.count += len(events)
        return commands

    def run(self, name, sandbox, at):
        self.send(RunFinished(name, sandbox, 1.0), at=at)


def busy_device(a="a", b="b", c="c", jump_s=0):
    """One device for one call at a time: `a` runs, `b` waits for it, and `c` for `b`, a call of its function."""
    functions = [function(name, memory_bytes=3 * GIB) for name in "fg"]
    harness = RecordedHarness(
        "fcfs", devices=[device("gpu-1", concurrency=1, memory_bytes=4 * GIB)], functions=functions
    )
    arrive(harness, a, "f", 1.0)
    harness.send(SandboxStarted(1), at=2.0)
    arrive(harness, b, "g", 3.0)
    arrive(harness, c, "g", 4.0)
    harness.clock_s += jump_s
    harness.cut()
    harness.run(a, 1, 10.0)
    harness.send(SandboxStarted(2), at=11.0)
    harness.run(b, 2, 12.0)
    harness.run(c, 2, 13.0)
    return harness


def arrive(harness, name, flow, at, tenant="default"):
    harness.send(InvocationArrived(name, tenant, flow), at=at)


def write(folder, segments=(), records=()):
    async def fill():
        async with opened(folder) as store:
            for segment in segments:
                store.open_segment(segment[0])
                for body in segment[1:]:
                    store.journal(body)
                await store.flush()
            for record in records:
                store.record(record)
            await store.flush()

    asyncio.run(fill())


def record(name, *, owner="default", function="f", start=EPOCH_S, status=0, error=None, notes=()):
    summary = {
        "statusCode": status,
        "annotations": [{"key": key, "value": value} for key, value in dict(notes).items()],
    }
    response = {"result": {"error": error}} if error else {"result": {}}
    encoded = msgspec.json.encode(summary), msgspec.json.encode(response)
    return Activation(name, owner, function, 1000 * start, 1000 * start + 1, *encoded, b"[]")


@pytest.fixture
def historian(tmp_path):
    made = Historian(tmp_path)
    yield made
    made.close()


def ask(historian, question, *, explain=False):
    historian.catch_up(60)
    if explain:
        assert not historian.explain(60)
    return msgspec.json.decode(historian.answer(question))


def found(historian, **wanted):
    calls = ask(historian, Search(viewer=OPERATOR, **wanted), explain="cause" in wanted)["calls"]
    return [call["activationId"] for call in calls]


def test_calls_are_found_by_what_happened_to_them(tmp_path, historian):
    write(tmp_path, busy_device().segments, [record("b", status=1, error="No <b>room</b> left", function="g")])
    assert found(historian) == ["c", "b", "a"]
    assert found(historian, name="g") == ["c", "b"]
    assert found(historian, min_wait_s=7.5) == ["c"]
    assert found(historian, min_duration_s=9.5) == []
    assert found(historian, start="cold") == ["b", "a"]
    assert found(historian, status="failed") == ["b"]
    assert found(historian, error="no <B>room") == ["b"]
    assert found(historian, since_s=EPOCH_S + 4) == ["c"]
    assert found(historian, device="gpu-2") == []


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_clock_that_jumps_changes_no_wait(tmp_path, historian, jump_s):
    write(tmp_path, busy_device(jump_s=jump_s).segments)
    calls = ask(historian, Search(viewer=OPERATOR))["calls"]
    assert {call["activationId"]: call["wait"] for call in calls} == {"a": 0, "b": 7, "c": 8}
    assert found(historian, cause="full") == ["b"]


def test_causes_come_from_a_replay_of_the_scheduler(tmp_path, historian):
    write(tmp_path, busy_device().segments)
    assert found(historian, cause="full") == ["b"]
    assert found(historian, cause="own queue") == ["c"]
    assert ask(historian, Search(viewer=OPERATOR, cause="full"))["explainedSince"] == EPOCH_S


def test_the_parts_of_a_list_have_each_call_once(tmp_path, historian):
    harness = RecordedHarness("fcfs", devices=[device("gpu-1")], functions=[function("f")])
    for number in range(25):
        arrive(harness, f"call {number}", "f", 1.0 + number)
    write(tmp_path, harness.segments)
    seen, cursor = [], ""
    while True:
        part = ask(historian, Search(viewer=OPERATOR, limit=10, cursor=cursor))
        seen += [call["activationId"] for call in part["calls"]]
        cursor = part["cursor"]
        if not cursor:
            break
    assert seen == [f"call {number}" for number in reversed(range(25))]


def test_new_rows_are_read_when_somebody_asks(tmp_path, historian):
    harness = busy_device()
    write(tmp_path, harness.segments)
    assert len(found(historian)) == 3
    arrive(harness, "later", "f", 20.0)
    asyncio.run(append(tmp_path, harness.segments[-1][-1]))
    assert found(historian)[0] == "later"


async def append(folder, body):
    async with opened(folder) as store:
        store.open_segment(snapshot.take(Harness(devices=[]).scheduler, PolicySettings("fcfs"), now_ms=1000 * EPOCH_S))
        store.journal(body)
        await store.flush()


def test_a_namespace_sees_its_own_calls_and_nothing_of_an_earlier_one_of_its_name(tmp_path, historian):
    harness = busy_device()
    records = [record("a", owner="default:old"), record("b", owner="default:new"), record("s", owner="default:new")]
    write(tmp_path, harness.segments, records)
    new = Viewer("default", "default:new", EPOCH_S + 3.5)

    def seen(viewer):
        return [call["activationId"] for call in ask(historian, Search(viewer=viewer))["calls"]]

    assert seen(new) == ["s", "c", "b"]  # `c` has no record yet, and came after the namespace
    assert seen(Viewer("stranger", "stranger")) == []
    decisions = ask(historian, DecisionList(viewer=new))["decisions"]
    assert decisions
    assert all(decision["at"] >= new.since_s for decision in decisions)
    assert not ask(historian, DecisionList(viewer=Viewer("stranger", "stranger")))["decisions"]
    slices = ask(historian, DeviceSlices(viewer=Viewer("stranger", "s"), begin_s=EPOCH_S, end_s=EPOCH_S + 60))
    assert {(one["namespace"], one.get("action")) for one in slices["devices"][0]["slices"]} == {("others", None)}
    assert "default" not in str(slices)
    assert ask(historian, FunctionFigures(viewer=Viewer("stranger", "s"), name="g", last_s=1e12))["calls"] == 0


def test_decisions_tell_for_whom_room_was_made(tmp_path, historian):
    write(tmp_path, busy_device().segments)
    told = ask(historian, DecisionList(viewer=OPERATOR))
    (made,) = [each for each in told["decisions"] if each["kind"] in {"UnloadMemory", "StopSandbox"}][:1]
    assert made["roomFor"] == "default/g"
    assert made["action"] == "f"
    assert {"Dispatch", "StartSandbox"} <= told["kinds"].keys()


def test_slices_figures_and_series_add_up(tmp_path, historian):
    write(tmp_path, busy_device().segments)
    (lane,) = ask(historian, DeviceSlices(viewer=OPERATOR, begin_s=EPOCH_S, end_s=EPOCH_S + 60))["devices"]
    runs = [(one["begin"] - EPOCH_S, one["end"] - EPOCH_S) for one in lane["slices"] if one["activity"] == "run"]
    assert runs == [(2, 10), (11, 12), (12, 13)]
    assert lane["busy"] == 12  # from the first start at 1 to the end at 13
    figures = ask(historian, FunctionFigures(viewer=OPERATOR, namespace="default", name="g", last_s=1e12))
    assert (figures["calls"], figures["starts"], figures["deviceSeconds"]) == (2, {"cold": 1, "warm": 1}, 2)
    assert figures["wait"]["max"] == 8
    asked = SeriesOf(viewer=OPERATOR, names=["queued", "ended"], begin_s=EPOCH_S, end_s=EPOCH_S + 14, step_s=1)
    columns = ask(historian, asked)["values"]
    assert columns["queued"][3:11] == [1, 2, 2, 2, 2, 2, 2, 2]
    assert sum(columns["ended"]) == 3


def test_records_of_compositions_and_of_older_journals_are_found_too(tmp_path, historian):
    notes = {"start": "cold", "waitTime": 20, "initTime": 300, "device": "gpu-7"}
    write(tmp_path, busy_device().segments, [record("old", start=EPOCH_S - 50, notes=notes), record("sequence")])
    by_id = {call["activationId"]: call for call in ask(historian, Search(viewer=OPERATOR))["calls"]}
    assert by_id["old"]["devices"] == ["gpu-7"]
    assert by_id["old"]["wait"] == pytest.approx(0.02)
    assert by_id["sequence"]["start"] == "composition"
    assert "wait" not in by_id["sequence"]


def test_a_call_that_a_killed_server_lost_is_interrupted(tmp_path, historian):
    harness = RecordedHarness("fcfs", devices=[device("gpu-1")], functions=[function("f")])
    arrive(harness, "lost", "f", 1.0)
    arrive(harness, "kept", "f", 1.5)
    again = RecordedHarness("fcfs", devices=[device("gpu-1")], functions=[function("f")])
    arrive(again, "kept", "f", 100.0)
    write(tmp_path, [*harness.segments, *again.segments])
    status = {call["activationId"]: call["status"] for call in ask(historian, Search(viewer=OPERATOR))["calls"]}
    assert status == {"lost": "interrupted", "kept": "open"}


HARM = {
    "torn": "UPDATE journal SET bodies = x'00' WHERE segment < ?",
    "pruned": "DELETE FROM journal WHERE segment < ?",
}


@pytest.mark.parametrize("harm", ["torn", "pruned", "version"])
def test_a_segment_that_cannot_be_read_is_left_out(tmp_path, historian, harm):
    segments = busy_device().segments + busy_device("A", "B", "C").segments
    if harm == "version":
        head = msgspec.msgpack.decode(segments[0][0], type=snapshot.SchedulerSnapshot)
        segments[0][0] = msgspec.msgpack.encode(replace(head, version="0.0.0"))
        segments[1][0] = msgspec.msgpack.encode(replace(head, version="0.0.0"))
    write(tmp_path, segments)
    if harm != "version":
        with sqlite3.connect(tmp_path / "aliquot.db") as connection:
            (last,) = connection.execute("SELECT max(segment) FROM journal").fetchone()
            connection.execute(HARM[harm], (last - 1,))
        connection.close()
    assert found(historian) == ["C", "B", "A"]
    assert found(historian, cause="full") == ["B"]


def test_a_job_is_told_of_each_call_when_its_record_is_there(tmp_path):
    class Told:
        def __init__(self):
            self.calls = []

        def call_ended(self, call, record):
            assert record.id == call.id
            self.calls.append((call.id, call.run_s))

        def work(self, _now_s):
            return 1.0

        def report(self):
            return b""

        def close(self):
            self.calls.append("closed")

    told = Told()
    write(tmp_path, busy_device().segments, [record("a"), record("b", function="g")])
    historian = Historian(tmp_path, [told])
    historian.catch_up(60)
    historian.close()
    assert told.calls == [("a", 8.0), ("b", 1.0), "closed"]


def test_a_folder_without_a_journal_has_no_calls(tmp_path, historian):
    write(tmp_path)
    assert found(historian) == []
