"""GPU profiles for functions whose run times a trace does not record.

`mqfq`: the nine functions of a published table, measured on a V100. The run time is that of a warm call, and the start
is the additional time of a cold call. Memory sizes are not published, and `v100.py` has the assumed ones.

`timm`: image classifiers, measured on an RTX 3090 and an RTX 4090. A call is assumed to classify 256 images. Its memory
is 512 MiB of context, 4 bytes per parameter and 2 bytes per activation of 32 concurrent images. It starts in 2 s plus
the transfer of its weights from the store. If several image sizes were measured, the smallest is used. Models without
an activation count or above 16 GiB are left out.

`assumptions.py` has the transfer rates of both.
"""

from collections.abc import Callable
from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB, MIB
from aliquot.sim.importers.assumptions import STORE_BYTES_PER_S, load_s
from aliquot.sim.input_files import CsvRow, read_rows
from aliquot.sim.v100 import V100_FUNCTIONS
from aliquot.sim.workloads import MICROSECONDS

MQFQ_COLUMNS = ("function", "gpu_warm_s", "gpu_cold_s", "in_published_table")
MQFQ_OTHERS = ("suite", "cpu_warm_s", "cold_container_no_gpu_s")

TIMM_KINDS = ("rtx3090", "rtx4090")  # run_s refers to the first
TIMM_COLUMNS = ("model", "infer_img_size", "infer_samples_per_sec", "param_count", "infer_macts")
TIMM_OTHERS = ("infer_step_time", "infer_batch_size", "infer_gmacs")
IMAGES = 256  # per call
IMAGES_AT_ONCE = min(IMAGES, 32)
CONTEXT_BYTES = 512 * MIB
TIMM_START_S = 2
MAX_PROFILE_BYTES = 16 * GIB


def read_mqfq(data: Path) -> list[FunctionSpec]:
    path = data / "function_profiles" / "mqfq_v100_table.csv"
    profiles = []
    for row in read_rows(path, MQFQ_COLUMNS, MQFQ_OTHERS):
        if row.number("in_published_table", "0 or 1") != 1:
            continue
        name = row.text("function")
        if name not in V100_FUNCTIONS:
            raise row.error(f"function '{name}' has no known memory size; it takes {', '.join(V100_FUNCTIONS)}")
        warm_s = row.number("gpu_warm_s", "seconds, 0 or more")
        cold_s = row.number("gpu_cold_s", "seconds, 0 or more")
        memory_bytes = V100_FUNCTIONS[name].memory_bytes
        times = Times(warm_s, round(max(0, cold_s - warm_s), MICROSECONDS), load_s(memory_bytes))
        profiles.append(FunctionSpec(name, memory_bytes, times=times))
    return _not_empty(profiles, path)


def read_timm(data: Path) -> list[FunctionSpec]:
    folder = data / "function_profiles" / "timm"
    paths = [folder / f"benchmark-infer-amp-nchw-pt240-cu124-{kind}.csv" for kind in TIMM_KINDS]
    first, second = (_timm_rows(path) for path in paths)
    smallest: dict[str, FunctionSpec] = {}
    sizes: dict[str, float] = {}
    for (name, size), row in first.items():
        if (name, size) not in second or size >= sizes.get(name, float("inf")):
            continue
        profile = _timm(name, row, second[name, size])
        if profile is not None:
            smallest[name] = profile
            sizes[name] = size
    return _not_empty(list(smallest.values()), paths[0])


def _timm_rows(path: Path) -> dict[tuple[str, float], CsvRow]:
    rows = read_rows(path, TIMM_COLUMNS, TIMM_OTHERS)
    return {(row.text("model"), row.number("infer_img_size", "pixels, 0 or more")): row for row in rows}


def _timm(name: str, row: CsvRow, second: CsvRow) -> FunctionSpec | None:
    activations_m = row.optional("infer_macts", "millions of activations, 0 or more")
    if activations_m is None:
        return None
    weight_bytes = 4 * 10**6 * row.number("param_count", "millions of parameters, 0 or more")
    memory_bytes = round(CONTEXT_BYTES + weight_bytes + 2 * 10**6 * activations_m * IMAGES_AT_ONCE)
    if memory_bytes > MAX_PROFILE_BYTES:
        return None
    cold_s = round(TIMM_START_S + weight_bytes / STORE_BYTES_PER_S, MICROSECONDS)
    by_kind = {
        kind: Times(_timm_run_s(measured), cold_s, load_s(memory_bytes))
        for kind, measured in zip(TIMM_KINDS, (row, second), strict=True)
    }
    return FunctionSpec(name, memory_bytes, times=by_kind[TIMM_KINDS[0]], times_by_kind=by_kind)


def _timm_run_s(row: CsvRow) -> float:
    return round(IMAGES / row.number("infer_samples_per_sec", "images a second, above 0", above=0), MICROSECONDS)


def _not_empty(profiles: list[FunctionSpec], path: Path) -> list[FunctionSpec]:
    if not profiles:
        raise InputError(f"{path}: there are no usable profiles; it takes one a line")
    return profiles


PROFILES: dict[str, Callable[[Path], list[FunctionSpec]]] = {"mqfq": read_mqfq, "timm": read_timm}
