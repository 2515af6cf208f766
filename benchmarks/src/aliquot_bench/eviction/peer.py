"""Hit rates of PyPI's `libcachesim` for the same requests, in an environment of its own."""

import json
import subprocess
import tempfile
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot_bench.environments import MeasurementError, cache_folder, prepare, python
from aliquot_bench.eviction.cache import Requests

REQUIREMENT = "libcachesim==0.3.5"
# Our names and libcachesim's for the policies that both have. Its Belady is only for blocks of equal size.
PEER_NAMES = {"gdsf": "GDSF", "lecar": "LeCaR", "lfu": "LFU", "lru": "LRU", "s3fifo": "S3FIFO"}

_SCRIPT = """
import json, sys
from array import array
import libcachesim
path, sizes, names = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
flat = array("q")
with open(path, "rb") as file:
    flat.frombytes(file.read())
request = libcachesim.Request()
rates = {}
for name in names:
    for size in sizes:
        cache = getattr(libcachesim, name)(cache_size=size)
        hits = 0
        for place in range(0, len(flat), 2):
            request.obj_id, request.obj_size, request.clock_time = flat[place] + 1, flat[place + 1], place
            hits += cache.get(request)
        rates.setdefault(name, []).append(2 * hits / len(flat))
print("rates", json.dumps(rates))
"""


def hit_rates(requests: Requests, sizes: Sequence[int], on_step: Callable[[str], None]) -> dict[str, list[float]]:
    """Return the hit rates by our policy names, one per size. Raise `MeasurementError` if it cannot run."""
    environment = prepare(cache_folder() / "libcachesim", [REQUIREMENT], on_step)
    with tempfile.NamedTemporaryFile(suffix=".requests") as file:
        Path(file.name).write_bytes(array("q", [value for request in requests for value in request]).tobytes())
        arguments = (file.name, json.dumps(list(sizes)), json.dumps(list(PEER_NAMES.values())))
        command = [python(environment), "-c", _SCRIPT, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    answers = [line for line in done.stdout.splitlines() if line.startswith("rates ")]
    if done.returncode != 0 or not answers:
        raise MeasurementError(f"libcachesim ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    rates = json.loads(answers[0].removeprefix("rates "))
    return {ours: rates[theirs] for ours, theirs in PEER_NAMES.items()}
