"""A journal of many calls, written by the real scheduler, and the historian that reads it in a process of its own."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from aliquot.assemble import assemble
from aliquot.config import PolicySettings
from aliquot.core.commands import Run, StartSandbox
from aliquot.core.events import DeviceAdded, Event, FunctionDeployed, InvocationArrived, RunFinished, SandboxStarted
from aliquot.core.model import DeviceSpec, FunctionSpec
from aliquot.core.units import GIB
from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store import SqliteStore

EPOCH_S = 1_700_000_000
_FUNCTIONS = 20
_STEPS_PER_ROW = 64
_SEGMENT_CALLS = 30_000
_READ = """
import json, resource, sys, time
from pathlib import Path
from aliquot.live.history.historian.historian import Historian
from aliquot.live.history.messages import Search, Viewer
historian = Historian(Path(sys.argv[1]))
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
began = time.process_time()
historian.catch_up(1e9)
read_s = time.process_time() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
times = []
for wanted in ({}, {"name": "f7"}, {"status": "failed"}, {"min_wait_s": 1e9}, {"error": "nowhere"}, {"start": "cold"}):
    began = time.perf_counter()
    historian.answer(Search(viewer=Viewer(), **wanted))
    times.append(time.perf_counter() - began)
found = {"calls": len(historian.index.calls), "read_s": read_s, "base_bytes": base, "peak_bytes": peak}
print(json.dumps({**found, "search_s": max(times)}))
"""


class IndexFigures(NamedTuple):
    """The time and memory of the historian for an index."""

    calls: int
    read_s: float  # processor time
    base_bytes: int  # of the process before it reads
    peak_bytes: int
    search_s: float  # the slowest of six searches


async def write_journal(folder: Path, calls: int) -> None:
    """Write a journal in which this many calls of twenty functions come and end."""
    store = await SqliteStore.open(folder)
    scheduler = assemble(PolicySettings("fair_resident"))
    encode = msgspec.msgpack.Encoder().encode
    now, events_before = 0.0, 0
    devices = [DeviceAdded(DeviceSpec(f"gpu-{n}", memory_bytes=16 * GIB, concurrency=8)) for n in range(4)]
    functions = [FunctionDeployed("tenant", FunctionSpec(f"f{n}", GIB // 4)) for n in range(_FUNCTIONS)]
    pending: list[Event] = [*devices, *functions]
    for number in range(calls):
        if number % _SEGMENT_CALLS == 0:
            settings = PolicySettings("fair_resident")
            store.open_segment(snapshot.take(scheduler, settings, now_ms=round(1000 * (EPOCH_S + now))))
        now += 0.005
        pending.append(InvocationArrived(f"{number:032x}", "tenant", f"f{number % _FUNCTIONS}"))
        while pending:
            events = pending
            commands = scheduler.step(now, events)
            store.journal(encode(JournalStep(events_before, now, events, commands)))
            events_before += len(events)
            pending = [SandboxStarted(each.sandbox) for each in commands if isinstance(each, StartSandbox)]
            pending += [RunFinished(each.invocation, each.sandbox, 0.004) for each in commands if isinstance(each, Run)]
            now += 0.002 if pending else 0.0
        if number % _STEPS_PER_ROW == 0:
            await store.flush()
    await store.close()


def measure_index(folder: Path, calls: int) -> IndexFigures:
    """Write a journal of so many calls, and let a historian read it."""
    asyncio.run(write_journal(folder, calls))
    command = [sys.executable, "-c", _READ, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    return IndexFigures(**json.loads(done.stdout))
