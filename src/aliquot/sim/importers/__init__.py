"""Importers of real traces: the table of traces that can become workloads."""

from collections.abc import Callable

from aliquot.sim.importers.azure_functions import read_azure_functions
from aliquot.sim.importers.azure_functions_1000 import read_azure_functions_1000
from aliquot.sim.importers.azure_functions_day import read_azure_functions_day
from aliquot.sim.importers.azure_llm import read_azure_llm
from aliquot.sim.importers.helios import read_helios
from aliquot.sim.importers.helios_log import read_helios_log
from aliquot.sim.importers.mooncake import read_mooncake
from aliquot.sim.importers.philly import read_philly
from aliquot.sim.importers.philly_log import read_philly_log
from aliquot.sim.importers.request import ImportedTrace, ImportRequest
from aliquot.sim.importers.servegen import read_servegen

IMPORTERS: dict[str, Callable[[ImportRequest], ImportedTrace]] = {
    "azure_functions": read_azure_functions,
    "azure_functions_1000": read_azure_functions_1000,
    "azure_functions_day": read_azure_functions_day,
    "azure_llm": read_azure_llm,
    "helios": read_helios,
    "helios_log": read_helios_log,
    "mooncake": read_mooncake,
    "philly": read_philly,
    "philly_log": read_philly_log,
    "servegen": read_servegen,
}
