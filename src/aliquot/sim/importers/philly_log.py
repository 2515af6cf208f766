"""Importer of Microsoft's Philly cluster of 2017 as Microsoft publishes it: the JSON file `cluster_job_log`.

It is imported as `philly`: a virtual cluster is a tenant with one function, and only jobs with one GPU are kept. As in
the publishers' analysis, a job has the GPUs of its first attempt, and runs from the begin of the first attempt to the
end of the last one. Jobs for which one of these times is missing are left out. A job arrives when it was submitted.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.philly import FOLDER, cluster_job, training_jobs
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, import_listed, refuse_profiles, since_first
from aliquot.sim.input_files import TIMESTAMPS, parse_timestamp, read_json_list

FILE = "cluster_job_log"
UNKNOWN = (None, "", "None")  # how the log writes a time that was not recorded


class MachineGpus(Struct):
    """The GPUs of an attempt on one machine."""

    gpus: list[str]


class JobAttempt(Struct):
    """One attempt to run a job."""

    start_time: str | None
    end_time: str | None
    detail: list[MachineGpus]


class PhillyJob(Struct):
    """One job of the log. Other fields are ignored."""

    vc: str
    jobid: str
    attempts: list[JobAttempt]
    submitted_time: str | None


def read_philly_log(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "philly_log")
    path = request.data / FOLDER / FILE
    return import_listed(since_first(_calls(path)), training_jobs, request)


def _calls(path: Path) -> Iterator[Arrival]:
    for job in read_json_list(path, PhillyJob):
        if not job.attempts or sum(len(machine.gpus) for machine in job.attempts[0].detail) != 1:
            continue
        texts = (job.submitted_time, job.attempts[0].start_time, job.attempts[-1].end_time)
        if any(text in UNKNOWN for text in texts):
            continue
        submitted_s, started_s, ended_s = (_moment(path, job, text or "") for text in texts)
        yield cluster_job(submitted_s, job.vc, max(0, ended_s - started_s))


def _moment(path: Path, job: PhillyJob, text: str) -> float:
    moment = parse_timestamp(text)
    if moment is None:
        raise InputError(f"{path}: job {job.jobid} has the time '{text}'; it takes {TIMESTAMPS}")
    return moment
