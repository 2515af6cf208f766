"""Four measured networks with deadlines: the cases in which admission is compared with Clockwork.

The run times by batch size are those of `function_profiles/nexus_titanx`. Calls arrive by a gamma process. A load of 1
is what the lanes complete with the largest batches of which two in a row keep the limit. The settings of `reservation`
were chosen on seeds from 100 on. The benchmark uses seeds below.
"""

import csv
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import dropwhile, takewhile
from operator import itemgetter
from pathlib import Path
from random import Random

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.sim.importers.files import Files
from aliquot.sim.workloads import draw_run_s

FOLDER = Path("function_profiles") / "nexus_titanx"
FILES = {
    "vgg16": "caffe_vgg16_1",
    "vgg_face": "caffe_vgg_face_1",
    "vgg_s": "caffe_vgg_s_1",
    "yolo": "darknet_yolo9000_1",
}
MAX_SIZE = 32
LIMITS_MS: dict[str, tuple[float, ...]] = {"100 ms": (100, 100, 100, 100), "60-120-30-200": (60, 120, 30, 200)}
RUNS = "10 runs"  # each network's limit is ten of its runs
LIMITS = ("100 ms", RUNS, "60-120-30-200")
RUN_CV = 0.01
MICROSECONDS = 6


class Network(Struct, frozen=True):
    """A network with its run times by the size of the batch."""

    name: str
    times_s: dict[int, float]

    def function(self) -> FunctionSpec:
        batches = {size: run_s for size, run_s in self.times_s.items() if size > 1}
        times = Times(self.times_s[1], 0, 0, batches)
        return FunctionSpec(self.name, times=times, batch=max(self.times_s))

    def best_s(self, limit_s: float) -> float:
        """Return the least time of a call in a batch of which two in a row keep the limit."""
        return min(run_s / size for size, run_s in self.times_s.items() if size == 1 or 2 * run_s <= limit_s)


class NetworkCase(Struct, frozen=True):
    """One set of limits at one load on so many lanes."""

    limits: str
    load: float
    lanes: int
    cv: float  # of the gaps between arrivals
    seed: int = 1
    calls: int = 10_000
    run_cv: float = RUN_CV

    @property
    def name(self) -> str:
        return f"{self.limits}, load {self.load:g}, {self.lanes} lanes, cv {self.cv:g}"


def read_networks(data: Path) -> list[Network]:
    """Read the four networks from the folder of traces. Run times grow with the size."""
    return [_read(name, data / FOLDER / f"{file}.txt") for name, file in FILES.items()]


def network_files() -> list[list[Files]]:
    """Return the files that the networks are read from."""
    return [[(f"{FOLDER}/{file}.txt",)] for file in FILES.values()]


def _read(name: str, path: Path) -> Network:
    if not path.is_file():
        raise InputError(f"--data: there is no file {path}; it takes the folder with `function_profiles`")
    lines = path.read_text(encoding="utf-8").splitlines()
    table = takewhile(lambda line: "," in line, dropwhile(lambda line: not line.startswith("batch,"), lines))
    times_s: dict[int, float] = {}
    longest_s = 0.0
    for row in csv.DictReader(table):
        longest_s = max(longest_s, float(row["latency(us)"]) / 1e6)
        if int(row["batch"]) <= MAX_SIZE:
            times_s[int(row["batch"])] = round(longest_s, MICROSECONDS)
    return Network(name, times_s)


def limits_s(limits: str, networks: list[Network]) -> dict[str, float]:
    """Return the latency limit of each network."""
    if limits == RUNS:
        return {network.name: 10 * network.times_s[1] for network in networks}
    return {network.name: ms / 1e3 for network, ms in zip(networks, LIMITS_MS[limits], strict=True)}


def network_scenario(case: NetworkCase, networks: list[Network]) -> Scenario:
    """Return the lanes, the networks and the calls of a case. Each network offers an equal part of the work."""
    limits = limits_s(case.limits, networks)
    rates = {
        network.name: case.load * case.lanes / len(networks) / network.best_s(limits[network.name])
        for network in networks
    }
    duration_s = case.calls / sum(rates.values())
    functions = {network.name: network.function() for network in networks}
    return Scenario(
        [DeviceSpec(f"gpu-{number}", concurrency=1) for number in range(1, case.lanes + 1)],
        functions,
        ListedWorkload(
            merge(
                *(_calls(functions[name], rate, limits[name], duration_s, case) for name, rate in rates.items()),
                key=itemgetter(0),
            )
        ),
    )


def _calls(
    function: FunctionSpec, rate: float, limit_s: float, duration_s: float, case: NetworkCase
) -> Iterator[Arrival]:
    random = Random(f"{case.seed}/{case.name}/{function.name}")
    shape = 1 / case.cv**2
    now_s = random.random() / rate
    while now_s < duration_s:
        run_s = draw_run_s(random, function.times.run_s or 0, case.run_cv)
        yield Arrival(round(now_s, MICROSECONDS), function.name, run_s=run_s, deadline_s=limit_s)
        now_s += random.gammavariate(shape, 1 / (rate * shape))


def capacity(networks: list[Network], limits: Mapping[str, float], lanes: int) -> float:
    """Return the calls per second that the lanes complete at a load of 1."""
    return sum(lanes / len(networks) / network.best_s(limits[network.name]) for network in networks)
