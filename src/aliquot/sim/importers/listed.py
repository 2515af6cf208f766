"""Traces that list every call with what it took: short enough to be held in memory."""

from collections.abc import Callable, Iterable

from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.request import ImportedTrace, ImportRequest
from aliquot.sim.importers.window import busiest, in_window
from aliquot.sim.workloads import MICROSECONDS


def import_listed(
    calls: Iterable[Arrival], describe: Callable[[str, float], FunctionSpec], request: ImportRequest
) -> ImportedTrace:
    """Each function gets the mean of its calls in the window as its run time; `describe` takes name and mean."""
    ordered = sorted(calls, key=lambda call: call.time_s)
    window = [call for call in ordered if request.start_s <= call.time_s < request.end_s]
    runs: dict[str, list[float]] = {}
    for call in window:
        runs.setdefault(call.function, []).append(call.run_s or 0)
    kept = busiest({name: len(times) for name, times in runs.items()}, request.flows)
    functions = {name: describe(name, round(sum(runs[name]) / len(runs[name]), MICROSECONDS)) for name in kept}
    return ImportedTrace(functions, in_window((call for call in window if call.function in functions), request))
