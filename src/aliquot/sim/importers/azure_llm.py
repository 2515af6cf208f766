"""Importer of Azure's LLM inference trace of 2023: one hour of two services, `code` and `conv`.

Each service is a tenant with one function. The trace records tokens, and `assumptions.py` gives their run times. Time 0
is the first call of either service.
"""

from collections.abc import Iterator
from pathlib import Path

from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.assumptions import language_model, tokens_run_s
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, import_listed, refuse_profiles, since_first
from aliquot.sim.input_files import read_rows

SERVICES = ("code", "conv")
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure_llm(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "azure_llm")
    folder = request.data / "azure_llm_2023"
    calls = [call for name in SERVICES for call in _calls(folder / f"AzureLLMInferenceTrace_{name}.csv", name)]
    return import_listed(since_first(calls), language_model, request)


def _calls(path: Path, name: str) -> Iterator[Arrival]:
    for row in read_rows(path, COLUMNS, ()):
        context = row.number("ContextTokens", "a number of tokens, 0 or more")
        generated = row.number("GeneratedTokens", "a number of tokens, 0 or more")
        yield Arrival(row.timestamp("TIMESTAMP"), name, name, tokens_run_s(context, generated))
