"""Importer of a larger sample of the Azure Functions trace of 2019: one day of 1 000 functions.

It is read as `azure_functions`. Owners are lost in this sample, so each function is a tenant of its own.
"""

from aliquot.sim.importers.azure_functions import AzureSample, read_azure_sample
from aliquot.sim.importers.azure_own import OwnFiles
from aliquot.sim.importers.request import ImportedTrace, ImportRequest

DAY_1000 = AzureSample(
    "invitro1000_inv.csv.gz",
    OwnFiles("invitro1000_run.csv.gz", "invitro1000_mem.csv.gz", memory_key="HashApp"),
    minute="minute_",
)


def read_azure_functions_1000(request: ImportRequest) -> ImportedTrace:
    return read_azure_sample(request, DAY_1000)
