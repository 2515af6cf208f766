"""Simulate the cases of the fairness benchmark, several at once.

A case is one job, in which all runs have the same calls, devices and pools. Jobs are independent, so they are divided
among as many processes as there are processors.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.report import RunReport, report
from aliquot_bench.fairness.cases import OVERLOAD, POOL_SLOTS, FairnessCase, make_scenario
from aliquot_bench.fairness.lower_bound import ideal_fair_p99_s, p99_bound_s, throughput

Reports = dict[str, RunReport]  # by policy, or by the name of a variant


class CaseJob(Struct, frozen=True):
    """A case, and the policies that run on it."""

    case: FairnessCase
    data: Path
    runs: dict[str, PolicySettings]


class CaseResult(Struct, frozen=True):
    """The reports of a case, with what was computed from its calls."""

    reports: Reports
    flows: int
    longest_s: float  # duration of the longest cold call
    bound_s: float  # lower bound of p99, at overload
    fair_s: float  # p99 of ideal fair sharing, at overload


def measure_case(job: CaseJob) -> CaseResult:
    """Simulate all runs of a case."""
    case = job.case
    scenario, flows = make_scenario(case, job.data)
    times = [function.times for function in scenario.functions.values()]
    bound_s = fair_s = 0.0
    if case.load == OVERLOAD:
        speed = throughput(case.shape.devices, case.shape.concurrency, InterferenceCurve(V100_STRETCH))
        bound_s = p99_bound_s(scenario.workload, scenario.functions, speed)
        fair_s = ideal_fair_p99_s(scenario.workload, scenario.functions, speed)
    longest_s = max(each.cold_s + (each.run_s or 0) for each in times)
    return CaseResult(simulate_all(scenario, job.runs, POOL_SLOTS), flows, longest_s, bound_s, fair_s)


def simulate_all(scenario: Scenario, runs: dict[str, PolicySettings], pool_slots: int) -> Reports:
    """Simulate each run with the same pool."""
    overview = scenario.workload.overview()
    figures = {}
    for name, run in runs.items():
        settings = PolicySettings(run.queueing, params=run.params, pool_slots=pool_slots)
        recorder = simulate(scenario, settings, overview=overview)
        figures[name] = report(run.queueing, 0, recorder, scenario.devices)
    return figures


def measure_all(jobs: Sequence[CaseJob], workers: int | None = None) -> Iterator[CaseResult]:
    """Yield the result of each job, in order. By default there is one process per processor."""
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    if workers == 1:
        yield from map(measure_case, jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(measure_case, jobs)
