"""A lower bound of the 99th percentile of latency, which no schedule can beat, however much it knows in advance.

Let L be the latency that 99 of 100 calls do not exceed. The calls that arrive from time a to time b, except for the
hundredth part of all calls that may take longer, must end by b + L. The devices complete at most c seconds of work per
second. So L >= (work that arrives from a to b - the work of the longest hundredth) / c - (b - a), for any a and b. The
bound ignores starts, transfers, fairness and the order of calls, so it may be far below what is possible.
"""

from math import floor

from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Workload


def p99_bound_s(workload: Workload, functions: dict[str, FunctionSpec], capacity: float) -> float:
    """Return the lowest 99th percentile of latency on devices that complete `capacity` seconds of work per second."""
    calls = [
        (call.time_s, (functions[call.function].times.run_s or 0) if call.run_s is None else call.run_s)
        for call in workload
    ]
    spared = len(calls) - 1 - floor(0.99 * (len(calls) - 1))
    spared_work_s = sum(sorted((run_s for _, run_s in calls), reverse=True)[:spared])
    work_s = longest_s = 0.0
    lowest: float | None = None  # of work before a, in seconds of the devices' time, minus a
    for time_s, run_s in calls:
        before = work_s / capacity - time_s
        lowest = before if lowest is None else min(lowest, before)
        work_s += run_s
        longest_s = max(longest_s, work_s / capacity - time_s - lowest)
    return max(0.0, longest_s - spared_work_s / capacity)
