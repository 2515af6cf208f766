"""Importer of ServeGen's clients of Alibaba's Model Studio: one tenant and one function per client.

The data record each client's rate in windows of ten minutes, and the distribution fitted to the gaps between its calls:
Gamma or Weibull with shape p1 and scale p2, or exponential in windows without a fit. Arrivals are generated window by
window. The scale follows from the rate instead of p2. Where the calls of a window came in one cluster, the fitted gaps
would fill the whole window with calls. Each window begins at a random point in time and not at a call, which would give
too many calls to a client with few, clustered calls.

`MODELS` has the assumed run times, memory sizes and start times. Run times are log-normal with a coefficient of
variation of 0.5. The default is the first 24 hours of three models, because two of them have no more data. The data are
read from the published files, one of each client, or from one file in which they are joined.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.assumptions import load_s
from aliquot.sim.importers.gaps import GAP_DISTRIBUTIONS
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, busiest, in_window, refuse_profiles
from aliquot.sim.input_files import CsvRow, find_file, read_plain_rows, read_rows
from aliquot.sim.workloads import MICROSECONDS, draw_run_s

FOLDER = "servegen_clients"
JOINED = "servegen_client_rates.csv.gz"
PUBLISHED = "*/{}/chunk-*-trace.csv"  # of a model, below the folder of its category
COLUMNS = ("t_s", "rate_rps", "dist", "p1")
OTHERS = ("cv", "p2")
PUBLISHED_COLUMNS = ("t_s", "rate_rps", "cv", "dist", "p1", "p2")
DAY_S = 86_400
WINDOW_S = 600  # assumed length of a client's only window
RUN_CV = 0.5


class ServedModel(Struct, frozen=True):
    """Assumed properties of a model."""

    run_s: float
    memory_gib: int
    cold_s: float


MODELS = {
    "m-small": ServedModel(0.4, 4, 8),
    "deepseek-r1": ServedModel(4, 12, 20),
    "mm-image": ServedModel(1.2, 8, 12),
    "m-mid": ServedModel(0.8, 8, 12),
    "m-large": ServedModel(2, 12, 20),
}
DEFAULT_MODELS = ("m-small", "deepseek-r1", "mm-image")


class RateWindow(Struct, frozen=True):
    """A window of a client: its call rate, and the distribution of the gaps between calls."""

    start_s: float
    rate: float
    distribution: str
    shape: float


def read_servegen(request: ImportRequest) -> ImportedTrace:
    refuse_profiles(request, "servegen")
    if request.duration_s is None:
        request = replace(request, duration_s=DAY_S)
    clients = _read_clients(request.data / FOLDER, chosen_models(request))
    expected = {client: _expected(windows, request) for client, windows in clients.items()}
    functions = {}
    streams = []
    for model, client in busiest(expected, request.flows):
        function = _function(f"{model}-c{client}", MODELS[model])
        functions[function.name] = function
        streams.append(_arrivals(function, clients[model, client], request))
    return ImportedTrace(functions, in_window(merge(*streams, key=lambda arrival: arrival.time_s), request))


def _function(name: str, model: ServedModel) -> FunctionSpec:
    memory_bytes = model.memory_gib * GIB
    return FunctionSpec(name, memory_bytes, times=Times(model.run_s, model.cold_s, load_s(memory_bytes)))


def chosen_models(request: ImportRequest) -> tuple[str, ...]:
    """Return the models whose clients are imported."""
    for model in request.models:
        if model not in MODELS:
            raise InputError(f"--model: there is no '{model}'; it takes {', '.join(MODELS)}")
    return request.models or DEFAULT_MODELS


def _read_clients(folder: Path, models: Sequence[str]) -> dict[tuple[str, str], list[RateWindow]]:
    """Read the windows of the clients of these models, from the joined file if it is there."""
    clients: dict[tuple[str, str], list[RateWindow]] = {}
    for model, client, row in _joined(folder) if find_file(folder / JOINED).exists() else _published(folder, models):
        if model not in models:
            continue
        windows = clients.setdefault((model, client), [])
        window = _window(row)
        if windows and window.start_s <= windows[-1].start_s:
            raise row.error(
                f"t_s is {window.start_s} after {windows[-1].start_s} of the client; it takes ascending ones"
            )
        windows.append(window)
    return clients


def _joined(folder: Path) -> Iterator[tuple[str, str, CsvRow]]:
    for row in read_rows(folder / JOINED, ("model", "client", *COLUMNS), OTHERS):
        model = row.text("model")
        if model not in MODELS:
            raise row.error(f"model '{model}' is not known; it takes {', '.join(MODELS)}")
        yield model, row.text("client"), row


def _published(folder: Path, models: Sequence[str]) -> Iterator[tuple[str, str, CsvRow]]:
    """Yield the rows of the published files, which have no header. A client is named by the number of its file."""
    for model in models:
        files = {path.name.split("-")[1]: path for path in folder.glob(PUBLISHED.format(model))}
        for client in sorted(files, key=lambda name: (len(name), name)):
            for row in read_plain_rows(files[client], PUBLISHED_COLUMNS):
                yield model, client, row


def _window(row: CsvRow) -> RateWindow:
    start_s = row.number("t_s", "seconds, 0 or more")
    rate = row.number("rate_rps", "calls a second, 0 or more")
    distribution = row.values["dist"].strip()
    if distribution not in GAP_DISTRIBUTIONS:
        raise row.error(f"dist is '{distribution}'; it takes {', '.join(filter(None, GAP_DISTRIBUTIONS))} or nothing")
    shape = row.number("p1", "a shape above 0", above=0) if distribution and rate else 1
    return RateWindow(start_s, rate, distribution, shape)


def _spans(windows: list[RateWindow], request: ImportRequest) -> Iterator[tuple[RateWindow, float, float]]:
    """Yield each window with calls that overlaps the request, with its start and end."""
    length_s: float = WINDOW_S
    for index, window in enumerate(windows):
        if index + 1 < len(windows):
            length_s = windows[index + 1].start_s - window.start_s
        end_s = window.start_s + length_s
        if window.rate and end_s > request.start_s and window.start_s < request.end_s:
            yield window, window.start_s, end_s


def _expected(windows: list[RateWindow], request: ImportRequest) -> float:
    spans = _spans(windows, request)
    return sum(
        window.rate * (min(end_s, request.end_s) - max(start_s, request.start_s)) for window, start_s, end_s in spans
    )


def _arrivals(function: FunctionSpec, windows: list[RateWindow], request: ImportRequest) -> Iterator[Arrival]:
    gaps = Random(f"{request.seed}/{function.name}/gaps")
    runs = Random(f"{request.seed}/{function.name}/runs")
    mean_s = function.times.run_s or 0
    for window, start_s, end_s in _spans(windows, request):
        first_gap, next_gap = GAP_DISTRIBUTIONS[window.distribution](window.shape, 1 / window.rate)
        time_s = start_s + first_gap(gaps)
        while time_s < end_s:
            run_s = draw_run_s(runs, mean_s, RUN_CV)
            yield Arrival(round(time_s, MICROSECONDS), function.name, function.name, run_s)
            time_s += next_gap(gaps)
