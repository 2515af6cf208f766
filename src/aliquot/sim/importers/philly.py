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
from aliquot.sim.input_files import find_file, read_rows

FOLDER = "philly_jobs"
FILES = ("philly_jobs.csv.gz", "philly.csv")  # the same file under two names
COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
MEMORY_BYTES = 8 * GIB
COLD_S = 30


def read_philly(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "philly")
    files = [request.data / FOLDER / name for name in FILES]
    path = next((file for file in files if find_file(file).exists()), files[0])
    return import_listed(since_first(_calls(path)), training_jobs, request)


def _calls(path: Path) -> Iterator[Arrival]:
    for row in read_rows(path, COLUMNS, ("gpu_time",)):
        if row.number("num_gpus", "a number of GPUs, 0 or more") != 1:
            continue
        run_s = row.number("duration", "seconds, 0 or more")
        yield cluster_job(row.timestamp("timestamp"), row.text("cluster"), run_s)


def cluster_job(time_s: float, cluster: str, run_s: float) -> Arrival:
    """Return a job of a virtual cluster."""
    return Arrival(time_s, f"job-{cluster}", f"vc-{cluster}", run_s)


def training_jobs(name: str, run_s: float) -> FunctionSpec:
    """Return the function of a virtual cluster's jobs, with the assumed memory and start time."""
    return FunctionSpec(name, MEMORY_BYTES, times=Times(run_s, COLD_S, load_s(MEMORY_BYTES)))
