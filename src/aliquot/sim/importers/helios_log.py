"""Importer of SenseTime's Helios clusters of 2020 as SenseTime publishes them: the file `cluster_log.csv` of a cluster.

It is imported as `philly`: a virtual cluster is a tenant `vc-…` with one function `job-…`, and only jobs with one GPU
are kept. A job arrives when it was submitted, and `duration` is its run time.
"""

from collections.abc import Iterator
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.philly import cluster_job, training_jobs
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, import_listed, refuse_profiles, since_first
from aliquot.sim.input_files import read_rows

CLUSTERS = ("Earth", "Saturn", "Uranus", "Venus")
COLUMNS = ("vc", "gpu_num", "submit_time", "duration")


def read_helios_log(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "helios_log")
    return import_listed(since_first(_calls(request.data / log_name(request))), training_jobs, request)


def log_name(request: ImportRequest) -> str:
    """Return the name of the requested cluster's file, below the folder of all traces."""
    if request.cluster not in CLUSTERS:
        raise InputError(f"--cluster: there is no '{request.cluster}'; it takes {', '.join(CLUSTERS)}")
    return f"helios/{request.cluster}/cluster_log.csv"


def _calls(path: Path) -> Iterator[Arrival]:
    for row in read_rows(path, COLUMNS, None):
        if row.number("gpu_num", "a number of GPUs, 0 or more") == 1:
            run_s = row.number("duration", "seconds, 0 or more")
            yield cluster_job(row.timestamp("submit_time"), row.text("vc"), run_s)
