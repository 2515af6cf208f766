"""Azure's LLM inference trace of 2023: an hour of two services, `code` and `conv`, each a tenant with one function.

The trace gives tokens; `tokens.py` states how long they are assumed to take. Time 0 is the first call of either.
"""

from collections.abc import Iterator
from pathlib import Path

from aliquot.sim.arrivals import Arrival
from aliquot.sim.csv_input import read_rows
from aliquot.sim.importers.listed import import_listed
from aliquot.sim.importers.moments import read_moment, since_first
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, refuse_profiles
from aliquot.sim.importers.tokens import language_model, tokens_run_s

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
        yield Arrival(read_moment(row, "TIMESTAMP"), name, name, tokens_run_s(context, generated))
