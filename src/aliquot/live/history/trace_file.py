"""Write the last part of a server's journal as a file that trace viewers open."""

import gzip
import json
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

from aliquot.core.errors import InputError
from aliquot.live.history.chrome_trace import ChromeTrace
from aliquot.live.history.steps import rows_before, timed_steps
from aliquot.live.invocations.journal import snapshot
from aliquot.live.store.base import StoreError
from aliquot.live.store.journal import read_heads, read_journal

MAX_CALLS = 50_000


class WrittenTrace(NamedTuple):
    """The number of calls in a trace, and whether there were more."""

    calls: int
    is_cut: bool


def write_trace(data: Path, path: Path, from_s: float, max_calls: int = MAX_CALLS) -> WrittenTrace:
    """Write what happened since `from_s`, in epoch seconds. A file with the suffix `.gz` is compressed.

    Raises `InputError`.
    """
    try:
        rows = rows_before(read_heads(data), round(1000 * from_s))
        if not rows:
            raise InputError(f"--data: {data} has no journal that this version can read")
        with ExitStack() as stack:
            try:
                file = stack.enter_context(_create(path))
            except OSError as error:
                raise InputError(f"--out: {path} cannot be written: {error.strerror}") from error
            return _write(file, data, rows[-1], from_s, max_calls)
    except StoreError as error:
        raise InputError(f"--data: {error}") from error


def _write(file: IO[str], data: Path, row: int, from_s: float, max_calls: int) -> WrittenTrace:
    trace, is_cut = ChromeTrace(from_s), False
    file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
    between = ""
    for step, at, before in timed_steps(read_journal(data, after=row - 1)):
        if before is not None:
            trace.begin(snapshot.restore(before))
        for event in trace.take(step, at):
            file.write(between + json.dumps(event, ensure_ascii=False))
            between = ",\n"
        if trace.calls > max_calls:
            is_cut = True
            break
    file.write("\n]}\n")
    return WrittenTrace(min(trace.calls, max_calls), is_cut)


def _create(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8", compresslevel=5)
    return path.open("w", encoding="utf-8")
