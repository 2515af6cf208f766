"""The offline optimum: how many of a few calls could have ended in time, if all arrivals had been known.

For one lane, f(S) is the earliest end of a schedule of exactly the calls S, all of them in time. The last batch B of a
schedule has calls of one function. So f(S) is the least of max(f(S without B), arrivals of B) + run time of B, over B.
Two lanes share the calls: the optimum is the largest pair of disjoint sets that both have a schedule.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import inf

from msgspec import Struct

MAX_CALLS = 12


class OfflineCall(Struct, frozen=True):
    """A call of a function with its arrival and the end of its limit."""

    arrives_s: float
    due_s: float
    function: str


RunTime = Callable[[str, int], float]  # of a batch of so many calls of a function, on one kind of lane


def most_in_time(calls: Sequence[OfflineCall], lanes: Sequence[RunTime], max_batch: int) -> int:
    """Return the largest number of calls that two lanes, or one, can end in time."""
    if len(calls) > MAX_CALLS:
        raise ValueError(f"{len(calls)} calls; the optimum is computed for at most {MAX_CALLS}")
    batches = _batches(calls, max_batch)
    within = [[0] * (1 << len(calls)) for _ in lanes]  # the largest feasible part of each set, by lane
    for lane, run_s in enumerate(lanes):
        ends = _earliest_ends(calls, batches, run_s)
        largest = within[lane]
        for taken in range(1 << len(calls)):
            best = taken.bit_count() if ends[taken] < inf else 0
            rest = taken
            while rest:
                lowest = rest & -rest
                best = max(best, largest[taken ^ lowest])
                rest ^= lowest
            largest[taken] = best
    everything = (1 << len(calls)) - 1
    if len(lanes) == 1:
        return within[0][everything]
    first, second = within
    return max(first[taken] + second[everything ^ taken] for taken in range(everything + 1))


class _Batch(Struct, frozen=True):
    members: int  # a bit for each call
    arrives_s: float  # the last of them
    due_s: float  # the first of them
    function: str
    size: int


def _batches(calls: Sequence[OfflineCall], max_batch: int) -> list[_Batch]:
    found = []
    for size in range(1, max_batch + 1):
        for numbers in combinations(range(len(calls)), size):
            members = [calls[number] for number in numbers]
            if all(call.function == members[0].function for call in members):
                arrives_s, due_s = max(call.arrives_s for call in members), min(call.due_s for call in members)
                found.append(
                    _Batch(sum(1 << number for number in numbers), arrives_s, due_s, members[0].function, size)
                )
    return found


def _earliest_ends(calls: Sequence[OfflineCall], batches: Sequence[_Batch], run_s: RunTime) -> list[float]:
    """Return f for all sets of calls. Sets are visited in order of their number, which is larger with any more call."""
    timed = [(each.members, each.arrives_s, each.due_s, run_s(each.function, each.size)) for each in batches]
    feasible = [each for each in timed if each[1] + each[3] <= each[2]]
    ends = [inf] * (1 << len(calls))
    ends[0] = 0.0
    for taken, began_s in enumerate(ends):
        if began_s == inf:
            continue
        for members, arrives_s, due_s, length_s in feasible:
            if taken & members:
                continue
            end_s = max(began_s, arrives_s) + length_s
            if end_s <= due_s and end_s < ends[taken | members]:
                ends[taken | members] = end_s
    return ends
