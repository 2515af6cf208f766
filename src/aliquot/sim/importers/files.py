"""The files that each trace and profile needs, so that all missing ones are named at once."""

from collections.abc import Iterable
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.sim.importers.azure_functions import FOLDER, OWNERS_500, AzureSample
from aliquot.sim.importers.azure_functions_1000 import DAY_1000
from aliquot.sim.importers.azure_functions_day import day_sample
from aliquot.sim.importers.profiles import TIMM_KINDS
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.input_files import find_file

_LISTED = {
    "azure_llm": tuple(f"azure_llm_2023/AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")),
    "helios": ("helios_earth_vc/earth_vc_gpu_demand_1min_2020-05.csv.gz",),
    "mooncake": tuple(f"mooncake/{name}_trace.jsonl.gz" for name in ("conversation", "synthetic")),
    "philly": ("philly_jobs/philly_jobs.csv.gz",),
    "servegen": ("servegen_clients/servegen_client_rates.csv.gz",),
}
_PROFILES = {
    "mqfq": ("function_profiles/mqfq_v100_table.csv",),
    "timm": tuple(f"function_profiles/timm/benchmark-infer-amp-nchw-pt240-cu124-{kind}.csv" for kind in TIMM_KINDS),
}


def needed_files(kind: str, request: ImportRequest) -> tuple[str, ...]:
    """Return the names of the files that an import reads, below the folder of all traces."""
    samples = {
        "azure_functions": OWNERS_500,
        "azure_functions_1000": DAY_1000,
        "azure_functions_day": day_sample(request.day),
    }
    if kind in samples:
        return _azure(samples[kind], request.profile or "mqfq")
    return _LISTED[kind]


def _azure(sample: AzureSample, profile: str) -> tuple[str, ...]:
    counts = f"{FOLDER}/{sample.invocations}"
    if profile == "own":
        return (counts, f"{FOLDER}/{sample.own.durations}", f"{FOLDER}/{sample.own.memory}")
    return (counts, *_PROFILES.get(profile, ()))


def check_files(data: Path, names: Iterable[str]) -> None:
    """Raise an error that names all missing files."""
    missing = [name for name in dict.fromkeys(names) if not find_file(data / name).exists()]
    if missing:
        raise InputError(
            f"--data: {data} lacks {', '.join(missing)}; docs/how-to/traces.md says where traces come from, and "
            "`aliquot workload sample FOLDER` makes small ones of some kinds"
        )
