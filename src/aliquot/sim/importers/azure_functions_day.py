"""Importer of the Azure Functions trace of 2019 as Microsoft publishes it: one of its fourteen days.

The files keep their names, such as `invocations_per_function_md.anon.d01.csv`. It is read as `azure_functions`. The
published files of run times and memory do not have every function. With the profile `own` the others are left out.
"""

from aliquot.sim.importers.azure_functions import HASHES, AzureSample, read_azure_sample
from aliquot.sim.importers.azure_own import OwnFiles
from aliquot.sim.importers.request import ImportedTrace, ImportRequest

MAX_DAY = 14


def day_sample(day: int) -> AzureSample:
    """Return the files of a day, counted from 1."""
    end = f"anon.d{day:02d}.csv"
    own = OwnFiles(
        f"function_durations_percentiles.{end}",
        f"app_memory_percentiles.{end}",
        memory_key="HashApp",
        by_app=True,
        complete=False,
    )
    return AzureSample(f"invocations_per_function_md.{end}", own, (*HASHES, "Trigger"))


def read_azure_functions_day(request: ImportRequest) -> ImportedTrace:
    return read_azure_sample(request, day_sample(request.day))
