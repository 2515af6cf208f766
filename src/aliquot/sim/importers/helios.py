"""Importer of SenseTime's Helios cluster "Earth", May 2020: the GPU jobs of 16 virtual clusters by the minute.

A virtual cluster is a tenant `vc-…` with one function `job-…`. The trace counts the jobs that run in each minute. When
the count rises jobs have begun, and when it falls the oldest ones have ended, which gives their run times. Jobs that
begin and end within a minute are not seen. They begin at a moment of their minute that is drawn at random. All jobs are
assumed to need one device, 8 GiB of memory and 30 s to start, as those of `philly`. The data are read from the
published files, one of each virtual cluster, or from one file in which they are joined.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.philly import cluster_job, training_jobs
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, import_listed, refuse_profiles, since_first
from aliquot.sim.input_files import CsvRow, find_file, read_rows
from aliquot.sim.workloads import MICROSECONDS

FOLDER = "helios_earth_vc"
PUBLISHED = "*/cluster_sequence_vc.csv"  # in a folder for each virtual cluster
JOINED = "earth_vc_gpu_demand_1min_2020-05.csv.gz"
COLUMNS = ("vc", "minute", "running_gpujob_num")
OTHER_COLUMNS = ("total_gpu_num", "running_gpu_num", "pending_gpu_num", "pending_gpujob_num", "gpu_utilization")
MINUTE_S = 60
COUNTS = "a whole number, 0 or more"


def read_helios(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "helios")
    folder = request.data / FOLDER
    running = _joined(folder / JOINED) if find_file(folder / JOINED).exists() else _published(folder)
    jobs = [job for cluster, counts in running.items() for job in _jobs(cluster, counts, request.seed)]
    return import_listed(since_first(jobs), training_jobs, request)


def _published(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """Read the published files, one of each cluster. Minutes count from the first row of the first file."""
    running: dict[str, list[tuple[int, int]]] = {}
    first_s: float | None = None
    for path in sorted(folder.glob(PUBLISHED)):
        counts = running.setdefault(path.parent.name, [])
        for row in read_rows(path, ("time", "running_gpujob_num"), None):
            time_s = row.timestamp("time")
            first_s = time_s if first_s is None else first_s
            _add(counts, int((time_s - first_s) // MINUTE_S), int(row.number("running_gpujob_num", COUNTS)), row)
    return running


def _joined(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Read the number of running jobs of each cluster, with its minute."""
    running: dict[str, list[tuple[int, int]]] = {}
    for row in read_rows(path, COLUMNS, OTHER_COLUMNS):
        minute, jobs = row.number("minute", COUNTS), row.number("running_gpujob_num", COUNTS)
        _add(running.setdefault(row.text("vc"), []), int(minute), int(jobs), row)
    return running


def _add(counts: list[tuple[int, int]], minute: int, jobs: int, row: CsvRow) -> None:
    if counts and minute <= counts[-1][0]:
        raise row.error(f"minute is {minute} after {counts[-1][0]}; it takes ascending minutes of a cluster")
    counts.append((minute, jobs))


def _jobs(cluster: str, counts: list[tuple[int, int]], seed: int) -> Iterator[Arrival]:
    """Yield a cluster's jobs with their run times. Those that run in the first minute began before the trace."""
    random = Random(f"{seed}/{cluster}")
    begun: deque[float | None] = deque([None] * counts[0][1])  # those that run, the oldest first
    for minute, jobs in counts[1:]:
        while len(begun) < jobs:
            begun.append(round(MINUTE_S * (minute + random.random()), MICROSECONDS))
        while len(begun) > jobs:
            began_s = begun.popleft()
            if began_s is not None:
                yield _job(cluster, began_s, MINUTE_S * (minute + 1))
    end_s = MINUTE_S * (counts[-1][0] + 1)
    yield from (_job(cluster, began_s, end_s) for began_s in begun if began_s is not None)


def _job(cluster: str, began_s: float, ended_s: float) -> Arrival:
    return cluster_job(began_s, cluster, round(ended_s - began_s, MICROSECONDS))
