"""Importer of Microsoft's Philly cluster of 2017: the one-GPU training jobs of 15 virtual clusters.

A virtual cluster is a tenant `vc-…` with one function `job-…`, and a job's duration is its run time. All jobs are
assumed to need 8 GiB of memory and 30 s to start. Time 0 is the first job with one GPU.
"""

from collections.abc import Iterator
from pathlib import Path

from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.assumptions import load_s
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, import_listed, refuse_profiles, since_first
from aliquot.sim.input_files import read_rows

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
MEMORY_BYTES = 8 * GIB
COLD_S = 30


def read_philly(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "philly")
    calls = _calls(request.data / "philly_jobs" / "philly_jobs.csv.gz")
    return import_listed(since_first(calls), _job, request)


def _calls(path: Path) -> Iterator[Arrival]:
    for row in read_rows(path, COLUMNS, ("gpu_time",)):
        if row.number("num_gpus", "a number of GPUs, 0 or more") != 1:
            continue
        cluster = row.text("cluster")
        run_s = row.number("duration", "seconds, 0 or more")
        yield Arrival(row.timestamp("timestamp"), f"job-{cluster}", f"vc-{cluster}", run_s)


def _job(name: str, run_s: float) -> FunctionSpec:
    return FunctionSpec(name, MEMORY_BYTES, times=Times(run_s, COLD_S, load_s(MEMORY_BYTES)))
