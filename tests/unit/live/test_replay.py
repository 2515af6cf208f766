"""Replays of journals: from any snapshot on, the same events give the same commands, under every policy."""

import pickle
import zlib
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.errors import EventError, InputError
from aliquot.core.model import Times
from aliquot.core.scheduler import Scheduler
from aliquot.core.units import GIB
from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.replay import replay
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.base import JournalEntry
from aliquot.policies.keepalive import KEEPALIVE
from aliquot.policies.queueing import QUEUEING
from aliquot.testing.builders import device, function
from aliquot.testing.chaos import ChaosShell
from aliquot.testing.harness import Harness

SEEDS = range(2)  # for each pair of policies
FORMAT_1 = Path(__file__).with_name("journal_format_1.bin")


def bad_day(policy, keepalive, seed, monkeypatch):
    """Return the journal of a run with random failures, and with a new segment now and then."""
    entries, random, settings = [], Random(seed), PolicySettings(policy)
    real = Scheduler.step
    segment = number = -1

    def step(scheduler, now, events):
        nonlocal segment, number
        if segment < 0 or random.random() < 0.05:
            segment, number = segment + 1, 0
            entries.append(JournalEntry(segment, 0, snapshot.take(scheduler, settings, now_ms=0)))
        number += 1
        try:
            commands = real(scheduler, now, events)
        except EventError:
            entries.append(JournalEntry(segment, number, encode(now, events, [])))
            raise
        entries.append(JournalEntry(segment, number, encode(now, events, commands)))
        return commands

    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "step", step)
        ChaosShell(
            policy,
            devices=[
                device("gpu-1", concurrency=2, memory_bytes=4 * GIB),
                device("gpu-2", concurrency=3, memory_bytes=3 * GIB),
                device("cpu", kind="cpu", concurrency=3, memory_bytes=None),
            ],
            functions=[
                function("small", datasets=("images", "texts")),
                function("large", memory_bytes=3 * GIB, share=0.7, run_s=5),
                replace(function("host", share=0), runs_ahead=True),
                function("unknown", run_s=None, weight=2),
                function("either", times_by_kind={"cpu": Times(5, 1, 0)}),
            ],
            seed=seed,
            keepalive=keepalive,
            params={"fixed_ttl": {"ttl_s": "5"}, "hybrid_histogram": {"bin_s": "2", "bins": "5", "enough": "1"}},
        ).run_steps(150)
    return entries


def encode(now, events, commands):
    return msgspec.msgpack.encode(JournalStep(0, now, list(events), list(commands)))


@pytest.mark.parametrize("keepalive", sorted(KEEPALIVE))
@pytest.mark.parametrize("policy", sorted(QUEUEING))
def test_random_failures_replay_from_every_snapshot(policy, keepalive, monkeypatch):
    for seed in SEEDS:
        entries = bad_day(policy, keepalive, seed, monkeypatch)
        done = replay(entries)
        assert done.differences == []
        assert done.segments > 1
        assert done.steps == len(entries) - done.segments


def test_a_changed_event_shows_as_a_difference(monkeypatch):
    entries = bad_day("fair_resident", "adaptive", 1, monkeypatch)
    for position, entry in enumerate(entries):
        if entry.number == 0:
            continue
        step = msgspec.msgpack.decode(entry.body, type=JournalStep)
        if step.commands:
            entries[position] = JournalEntry(entry.segment, entry.number, encode(step.now, [], step.commands))
            break
    done = replay(entries)
    assert [(d.segment, d.number) for d in done.differences] == [(entry.segment, entry.number)]
    assert done.differences[0].then == step.commands


def test_a_missing_entry_is_named():
    head = snapshot.take(assemble(PolicySettings("fcfs")), PolicySettings("fcfs"), now_ms=0)
    step = encode(1, [], [])
    with pytest.raises(InputError, match="segment 0 has entry 2 after 0"):
        replay([JournalEntry(0, 0, head), JournalEntry(0, 2, step)])
    with pytest.raises(InputError, match="segment 3 begins with entry 1"):
        replay([JournalEntry(3, 1, step)])


def test_a_snapshot_that_would_run_something_is_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    body = msgspec.msgpack.encode(
        snapshot.SchedulerSnapshot(
            snapshot.__version__, PolicySettings("fcfs"), 0, pickle.dumps(Trap()), snapshot.FORMAT
        )
    )
    with pytest.raises(InputError, match="does not belong into a snapshot"):
        replay([JournalEntry(0, 0, body)])
    assert not (tmp_path / "sprung").exists()


def test_getattr_in_a_snapshot_reaches_enum_members_and_nothing_else():
    class Reach:
        def __reduce__(self):
            return (getattr, (PolicySettings, "__init__"))

    body = msgspec.msgpack.encode(
        snapshot.SchedulerSnapshot(
            snapshot.__version__, PolicySettings("fcfs"), 0, pickle.dumps(Reach()), snapshot.FORMAT
        )
    )
    with pytest.raises(InputError, match="does not belong into a snapshot"):
        replay([JournalEntry(0, 0, body)])


def test_another_version_is_named():
    body = msgspec.msgpack.encode(snapshot.SchedulerSnapshot("0.0.9", PolicySettings("fcfs"), 0, b""))
    with pytest.raises(InputError, match=r"written by aliquot 0\.0\.9"):
        replay([JournalEntry(0, 0, body)])


def journal_of_format_1():
    """Return the entries of a journal that was written by two runs before the format changed."""
    rows = msgspec.msgpack.decode(zlib.decompress(FORMAT_1.read_bytes()))
    return [JournalEntry(*row) for row in rows]


def test_a_journal_of_the_first_format_replays_from_the_beginning_of_each_run():
    entries = journal_of_format_1()
    done = replay(entries)
    assert (done.segments, done.steps, done.commands) == (4, 193, 326)
    assert [name.split("+")[0] for name in done.policies] == ["fair_resident", "mqfq_sticky"]
    assert done.differences == []
    assert done.skipped == []


def test_a_changed_command_of_the_first_format_shows_as_a_difference():
    entries = journal_of_format_1()
    position, (entry, step) = next(
        (position, (entry, msgspec.msgpack.decode(entry.body)))
        for position, entry in enumerate(entries)
        if b"gpu-1,gpu-2" in entry.body and b"StartSandbox" in entry.body and entry.number
    )
    for command in step[3]:
        if "device" in command:
            command["device"] = "gpu-2,gpu-1"
    entries[position] = JournalEntry(entry.segment, entry.number, msgspec.msgpack.encode(step))
    done = replay(entries)
    assert (done.differences[0].segment, done.differences[0].number) == (entry.segment, entry.number)
    assert {command.place for command in done.differences[0].then if hasattr(command, "place")} == {("gpu-2", "gpu-1")}


def test_segments_of_the_first_format_without_their_run_s_beginning_are_skipped():
    entries = [entry for entry in journal_of_format_1() if entry.segment > 0]
    done = replay(entries)
    assert done.skipped
    assert max(done.skipped) < done.segments + len(done.skipped)
    assert done.policies[0].startswith("mqfq_sticky")
    assert done.differences == []


def test_a_snapshot_of_many_flows_can_be_taken():
    functions = [function(f"f{number}", share=0) for number in range(3000)]
    harness = Harness("fair_resident", devices=[device("cpu", kind="cpu", memory_bytes=None)], functions=functions)
    restored = snapshot.restore(
        snapshot.read(snapshot.take(harness.scheduler, PolicySettings("fair_resident"), now_ms=0))
    )
    assert len(restored.registry.flows) == 3000
