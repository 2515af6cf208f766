"""The files that each trace and profile needs, so that all missing ones are named at once."""

from collections.abc import Iterable
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.sim.importers import helios, philly, philly_log, servegen
from aliquot.sim.importers.azure_functions import FOLDER, OWNERS_500, AzureSample
from aliquot.sim.importers.azure_functions_1000 import DAY_1000, PUBLISHED_1000
from aliquot.sim.importers.azure_functions_day import day_sample
from aliquot.sim.importers.helios_log import log_name
from aliquot.sim.importers.profiles import TIMM_KINDS
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.input_files import find_file

Files = tuple[str, ...]  # names below the folder of all traces, or patterns with a *

_LISTED: dict[str, list[Files]] = {
    "azure_llm": [tuple(f"azure_llm_2023/AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv"))],
    "helios": [(f"{helios.FOLDER}/{helios.PUBLISHED}",), (f"{helios.FOLDER}/{helios.JOINED}",)],
    "mooncake": [tuple(f"mooncake/{name}_trace.jsonl.gz" for name in ("conversation", "synthetic"))],
    "philly": [(f"{philly.FOLDER}/{name}",) for name in reversed(philly.FILES)],
    "philly_log": [(f"{philly.FOLDER}/{philly_log.FILE}",)],
}
_PROFILES = {
    "mqfq": ("function_profiles/mqfq_v100_table.csv",),
    "timm": tuple(f"function_profiles/timm/benchmark-infer-amp-nchw-pt240-cu124-{kind}.csv" for kind in TIMM_KINDS),
}


def needed_files(kind: str, request: ImportRequest) -> list[Files]:
    """Return the names of the files that an import reads: sets of which one is enough, the published one first."""
    samples = {
        "azure_functions": [OWNERS_500],
        "azure_functions_1000": [PUBLISHED_1000, DAY_1000],
        "azure_functions_day": [day_sample(request.day)],
    }
    if kind in samples:
        return [_azure(sample, request.profile or "mqfq") for sample in samples[kind]]
    if kind == "helios_log":
        return [(log_name(request),)]
    if kind == "servegen":
        folder, models = servegen.FOLDER, servegen.chosen_models(request)
        return [
            tuple(f"{folder}/{servegen.PUBLISHED.format(model)}" for model in models),
            (f"{folder}/{servegen.JOINED}",),
        ]
    return _LISTED[kind]


def _azure(sample: AzureSample, profile: str) -> Files:
    counts = f"{FOLDER}/{sample.invocations}"
    if profile == "own":
        return (counts, f"{FOLDER}/{sample.own.durations}", f"{FOLDER}/{sample.own.memory}")
    return (counts, *_PROFILES.get(profile, ()))


def check_files(data: Path, needed: Iterable[list[Files]]) -> None:
    """Raise an error that names all missing files of all traces. One complete set of files of each is enough."""
    missing: dict[str, None] = {}
    for sets in needed:
        lacking = [[name for name in names if not _is_there(data, name)] for names in sets]
        if all(lacking):
            others = "".join(f" (or instead {' and '.join(names)})" for names in lacking[1:])
            missing.update(dict.fromkeys([*lacking[0][:-1], lacking[0][-1] + others]))
    if missing:
        raise InputError(
            f"--data: {data} lacks {', '.join(missing)}; docs/how-to/traces.md says where traces come from, and "
            "`aliquot workload sample FOLDER` makes small ones of some kinds"
        )


def _is_there(data: Path, name: str) -> bool:
    return any(data.glob(name)) if "*" in name else find_file(data / name).exists()
