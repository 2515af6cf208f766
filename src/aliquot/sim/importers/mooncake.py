"""Importer of Mooncake's request traces of 2025: `conversation` and `synthetic`, each a tenant with one function.

The traces record tokens, and `assumptions.py` gives their run times. Both traces begin at 0 and run concurrently. Their
block hashes, which describe the savings of a prefix cache, are not used.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.assumptions import language_model, tokens_run_s
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, import_listed, refuse_profiles
from aliquot.sim.input_files import read_json_lines
from aliquot.sim.workloads import MICROSECONDS

SERVICES = ("conversation", "synthetic")
FromZero = Annotated[float, Meta(ge=0)]


class MooncakeRequest(Struct):
    """One line of the trace. Other fields are ignored."""

    timestamp: FromZero  # ms
    input_length: FromZero  # tokens
    output_length: FromZero


def read_mooncake(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "mooncake")
    folder = request.data / "mooncake"
    calls = [call for name in SERVICES for call in _calls(folder / f"{name}_trace.jsonl.gz", name)]
    return import_listed(calls, language_model, request)


def _calls(path: Path, name: str) -> Iterator[Arrival]:
    for line in read_json_lines(path, MooncakeRequest):
        run_s = tokens_run_s(line.input_length, line.output_length)
        yield Arrival(round(line.timestamp / 1000, MICROSECONDS), name, name, run_s)
