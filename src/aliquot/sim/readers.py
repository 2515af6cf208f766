"""A workload of users who read files, in the same order in each session or in a random one.

Each round of a user is a session of three calls: `prepare` reads a configuration, `train` reads parts of a dataset and
a checkpoint, and `evaluate` reads test data. Every user has its own files. In a shuffled workload each round reads the
parts in a new order, or draws them from a larger set. The next file is then unpredictable, and prefetching must do no
harm.
"""

from collections.abc import Iterator
from random import Random

from msgspec import Struct

from aliquot.core.model import FunctionSpec, Times
from aliquot.core.prefetching.records import FileKey
from aliquot.core.units import MIB
from aliquot.sim.arrivals import Arrival
from aliquot.sim.workloads import MICROSECONDS

DATASET = "lab"


class ReadersSpec(Struct, frozen=True):
    """Parameters of a workload of readers."""

    users: int = 8
    rounds: int = 40  # per user
    gap_s: float = 120  # mean time between two rounds of a user
    think_s: float = 2  # time between two calls of a round
    parts: int = 4  # parts of the dataset that a round reads
    part_mib: float = 64
    shuffled: bool = False
    drawn_from: int = 0  # if shuffled, the number of parts to draw from; 0: the same as `parts`
    seed: int = 0


def functions() -> dict[str, FunctionSpec]:
    times = {"prepare": Times(0.2, 0.5, 0.05), "train": Times(4, 1.5, 0.2), "evaluate": Times(1, 0.5, 0.1)}
    return {name: FunctionSpec(name, 256 * MIB, times=own, datasets=(DATASET,)) for name, own in times.items()}


def files(spec: ReadersSpec) -> dict[FileKey, int]:
    """Return the sizes of all users' files."""
    listed = {}
    for user in range(1, spec.users + 1):
        listed[DATASET, f"user{user}/config.json"] = MIB // 16
        for part in range(max(spec.parts, spec.drawn_from)):
            listed[DATASET, f"user{user}/part-{part:03}.bin"] = round(spec.part_mib * MIB)
        listed[DATASET, f"user{user}/checkpoint.pt"] = 160 * MIB
        listed[DATASET, f"user{user}/eval.bin"] = 32 * MIB
    return listed


def arrivals(spec: ReadersSpec) -> Iterator[Arrival]:
    """Return the arrivals of all users in order of time."""
    listed = [arrival for user in range(1, spec.users + 1) for arrival in _user_arrivals(spec, user)]
    return iter(sorted(listed, key=lambda arrival: arrival.time_s))


def _user_arrivals(spec: ReadersSpec, user: int) -> Iterator[Arrival]:
    random = Random(f"{spec.seed}/readers/{user}")
    own = f"{DATASET}/user{user}"
    parts = [f"{own}/part-{part:03}.bin" for part in range(max(spec.parts, spec.drawn_from))]
    time_s = 10 + random.random() * spec.gap_s  # leaves time to begin a session before its first call
    for number in range(1, spec.rounds + 1):
        if spec.shuffled:
            random.shuffle(parts)
        calls = {
            "prepare": (f"{own}/config.json",),
            "train": (*parts[: spec.parts], f"{own}/checkpoint.pt"),
            "evaluate": (f"{own}/eval.bin",),
        }
        at = time_s
        for function, reads in calls.items():
            yield Arrival(round(at, MICROSECONDS), function, f"user{user}", session=f"round{number}", reads=reads)
            at += spec.think_s
        time_s += spec.gap_s * (0.5 + random.random())
