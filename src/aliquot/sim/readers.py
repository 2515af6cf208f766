"""A workload of users who read files: again and again the same way, or in another order each time.

Each round of a user is a session of three calls: `prepare` reads a configuration, `train` the parts of a dataset and a
checkpoint, `evaluate` what it is tested on. Every user has files of its own. Where it is shuffled, each round reads the
parts in another order, or draws them from more: what comes next cannot be known, and prefetching must do no harm.
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
    users: int = 8
    rounds: int = 40  # of each
    gap_s: float = 120  # between the rounds of a user, on average
    think_s: float = 2  # between the calls of a round
    parts: int = 4  # of the dataset that a round reads
    part_mib: float = 64
    shuffled: bool = False
    drawn_from: int = 0  # that many parts, where it is shuffled; 0: just those
    seed: int = 0


def functions() -> dict[str, FunctionSpec]:
    times = {"prepare": Times(0.2, 0.5, 0.05), "train": Times(4, 1.5, 0.2), "evaluate": Times(1, 0.5, 0.1)}
    return {name: FunctionSpec(name, 256 * MIB, times=own, datasets=(DATASET,)) for name, own in times.items()}


def files(recipe: ReadersSpec) -> dict[FileKey, int]:
    listed = {}
    for user in range(1, recipe.users + 1):
        listed[DATASET, f"user{user}/config.json"] = MIB // 16
        for part in range(max(recipe.parts, recipe.drawn_from)):
            listed[DATASET, f"user{user}/part-{part:03}.bin"] = round(recipe.part_mib * MIB)
        listed[DATASET, f"user{user}/checkpoint.pt"] = 160 * MIB
        listed[DATASET, f"user{user}/eval.bin"] = 32 * MIB
    return listed


def arrivals(recipe: ReadersSpec) -> Iterator[Arrival]:
    """In order of time."""
    listed = [arrival for user in range(1, recipe.users + 1) for arrival in _of_user(recipe, user)]
    return iter(sorted(listed, key=lambda arrival: arrival.time_s))


def _of_user(recipe: ReadersSpec, user: int) -> Iterator[Arrival]:
    random = Random(f"{recipe.seed}/readers/{user}")
    own = f"{DATASET}/user{user}"
    parts = [f"{own}/part-{part:03}.bin" for part in range(max(recipe.parts, recipe.drawn_from))]
    time_s = 10 + random.random() * recipe.gap_s  # time enough to begin a session before its first call
    for number in range(1, recipe.rounds + 1):
        if recipe.shuffled:
            random.shuffle(parts)
        calls = {
            "prepare": (f"{own}/config.json",),
            "train": (*parts[: recipe.parts], f"{own}/checkpoint.pt"),
            "evaluate": (f"{own}/eval.bin",),
        }
        at = time_s
        for function, reads in calls.items():
            yield Arrival(round(at, MICROSECONDS), function, f"user{user}", session=f"round{number}", reads=reads)
            at += recipe.think_s
        time_s += recipe.gap_s * (0.5 + random.random())
