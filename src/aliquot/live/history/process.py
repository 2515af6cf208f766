"""The process that reads one call's history: `python -m aliquot.live.history.process DATA ID NEAR_MS`.

It prints the timeline as JSON, or an error as JSON and exits with code 1. It has a low priority and limits on time and
memory, because it replays a part of the journal beside the server.
"""

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from aliquot.core.errors import InputError
from aliquot.core.units import GIB
from aliquot.live.history.reading import HistoryMissingError, read_timeline
from aliquot.live.store.base import StoreError

NICENESS = 10
MAX_CPU_S = 60
MAX_DATA_BYTES = 2 * GIB


def main(arguments: list[str]) -> int:
    data, invocation, near_ms = arguments
    os.nice(NICENESS)
    with suppress(ValueError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    try:
        answer: object = read_timeline(Path(data), invocation, int(near_ms))
    except (HistoryMissingError, InputError, StoreError) as error:
        answer = {"error": str(error)}
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 1 if isinstance(answer, dict) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
