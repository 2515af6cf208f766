"""A lower bound of the 99th percentile of latency, which no schedule can beat, however much it knows in advance.

Let L be the latency that 99 of 100 calls do not exceed. The calls that arrive from time a to time b, except for the
hundredth part of all calls that may take longer, must end by b + L. At most c seconds of work are completed per second.
So L >= (work that arrives from a to b - the work of the longest hundredth) / c - (b - a), for any a and b.

**Starts are work, too.** At first no function has a sandbox. So each function with a call from time 0 to b, unless all
of these calls are among the hundredth that may take longer, is started by b + L. A start holds a slot. With fewer slots
for runs a device completes less: a second of a start costs at least `start_cost` seconds of work, which is the smallest
loss per slot. The calls that may take longer are chosen to avoid as many starts as possible, as a fractional knapsack.

The bound ignores repeated starts, transfers, fairness and what the scheduler cannot know. So it may be below what is
possible, never above. It holds for at most D calls at once on a device, as all policies but `mqfq_sticky` have.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from math import floor

from msgspec import Struct

from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Workload
from aliquot.sim.contention import InterferenceCurve
from aliquot.sim.statistics import quantile


class Throughput(Struct, frozen=True):
    """The speed of the devices: seconds of work per second, and seconds of work lost per second of a start."""

    capacity: float
    start_cost: float


def throughput(devices: int, concurrency: int, curve: InterferenceCurve) -> Throughput:
    """Return the throughput of equal devices with so many slots each."""
    rates = [0.0]  # by number of slots for runs
    for at_once in range(1, concurrency + 1):
        rates.append(max(rates[-1], at_once / curve.stretch(at_once)))
    lost = min((rates[-1] - rates[concurrency - starts]) / starts for starts in range(1, concurrency + 1))
    return Throughput(devices * rates[-1], lost)


def p99_bound_s(workload: Workload, functions: dict[str, FunctionSpec], speed: Throughput) -> float:
    """Return the lowest 99th percentile of latency that is possible."""
    calls = _calls(workload, functions)
    spared = len(calls) - 1 - floor(0.99 * (len(calls) - 1))
    spared_work_s = sum(sorted((run_s for _, _, run_s in calls), reverse=True)[:spared])
    starts_s = {name: _start_s(functions[name]) * speed.start_cost for _, name, _ in calls}
    seen: dict[str, int] = {}  # calls so far, by function
    started_s = work_s = longest_s = 0.0
    lowest: float | None = None  # of work before a, in seconds of the devices' time, minus a
    for time_s, name, run_s in calls:
        before = work_s / speed.capacity - time_s
        lowest = before if lowest is None else min(lowest, before)
        work_s += run_s
        started_s += 0 if name in seen else starts_s[name]
        seen[name] = seen.get(name, 0) + 1
        longest_s = max(longest_s, (work_s - spared_work_s) / speed.capacity - time_s - lowest)
        with_starts_s = (work_s - spared_work_s + started_s) / speed.capacity - time_s
        if with_starts_s > longest_s:  # only then is it worth counting the starts that may be avoided
            longest_s = max(longest_s, with_starts_s - _avoidable_s(seen, starts_s, spared) / speed.capacity)
    return max(0.0, longest_s)


def _start_s(function: FunctionSpec) -> float:
    return max(function.times.cold_s, function.times.load_s or 0)


def _avoidable_s(calls: Mapping[str, int], starts_s: Mapping[str, float], spared: int) -> float:
    """Return an upper bound of the start time that is saved by not serving so many calls."""
    saved_s = 0.0
    for name, count in _by_worth(calls, starts_s):
        part = min(1.0, spared / count)
        saved_s += part * starts_s[name]
        spared -= count
        if spared <= 0:
            break
    return saved_s


def _by_worth(calls: Mapping[str, int], starts_s: Mapping[str, float]) -> Iterable[tuple[str, int]]:
    return sorted(calls.items(), key=lambda each: starts_s[each[0]] / each[1], reverse=True)


def ideal_fair_p99_s(workload: Workload, functions: dict[str, FunctionSpec], speed: Throughput) -> float:
    """Return the 99th percentile under ideal fair sharing, in which waiting flows share all devices at any time.

    Each function is started once. There are no transfers, and a single call may use all devices. This is no bound. It
    tells how much of the delay comes from fairness: calls of a flow with many of them wait, while others do not.
    """
    virtual = now_s = 0.0  # virtual time passes at the capacity divided by the number of waiting flows
    finish: dict[str, float] = {}  # by flow: virtual time at which the work that has arrived is done
    ends: list[tuple[float, str, float]] = []  # virtual end, flow and arrival of each call
    waiting: dict[str, int] = {}  # calls, by flow
    latencies: list[float] = []

    def advance(until_s: float | None) -> None:
        nonlocal virtual, now_s
        while ends:
            end, flow, arrived_s = ends[0]
            end_s = now_s + (end - virtual) * len(waiting) / speed.capacity
            if until_s is not None and end_s > until_s:
                virtual += (until_s - now_s) * speed.capacity / len(waiting)
                break
            heappop(ends)
            virtual, now_s = end, end_s
            latencies.append(end_s - arrived_s)
            waiting[flow] -= 1
            if not waiting[flow]:
                del waiting[flow]
        now_s = now_s if until_s is None else until_s

    for time_s, name, run_s in _calls(workload, functions):
        advance(time_s)
        start_s = 0.0 if name in finish else _start_s(functions[name]) * speed.start_cost
        finish[name] = max(finish.get(name, virtual), virtual) + start_s + run_s
        heappush(ends, (finish[name], name, time_s))
        waiting[name] = waiting.get(name, 0) + 1
    advance(None)
    return quantile(sorted(latencies), 0.99)


def _calls(workload: Workload, functions: dict[str, FunctionSpec]) -> list[tuple[float, str, float]]:
    """Return the arrival, function and run time of each call."""
    return [
        (call.time_s, call.function, (functions[call.function].times.run_s or 0) if call.run_s is None else call.run_s)
        for call in workload
    ]
