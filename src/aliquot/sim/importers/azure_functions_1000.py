"""Importer of a larger sample of the Azure Functions trace of 2019: one day of 1 000 functions.

It is read as `azure_functions`. Owners are lost in this sample, so each function is a tenant of its own. The files have
their published names or those of `DAY_1000`.
"""

from pathlib import Path

from aliquot.sim.importers.azure_functions import FOLDER, AzureSample, read_azure_sample
from aliquot.sim.importers.azure_own import OwnFiles
from aliquot.sim.importers.request import ImportedTrace, ImportRequest
from aliquot.sim.input_files import find_file

DAY_1000 = AzureSample(
    "invitro1000_inv.csv.gz",
    OwnFiles("invitro1000_run.csv.gz", "invitro1000_mem.csv.gz", memory_key="HashApp"),
    minute="minute_",
)


PUBLISHED_1000 = AzureSample(
    "1000_inv.csv", OwnFiles("1000_run.csv", "1000_mem.csv", memory_key="HashApp"), minute="minute_"
)


def read_azure_functions_1000(request: ImportRequest) -> ImportedTrace:
    return read_azure_sample(request, day_1000(request.data))


def day_1000(data: Path) -> AzureSample:
    """Return the sample by the names that its files have."""
    return DAY_1000 if find_file(data / FOLDER / DAY_1000.invocations).exists() else PUBLISHED_1000
