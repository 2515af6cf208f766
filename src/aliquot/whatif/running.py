"""Simulate a recorded window under several policies, beside what was measured."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aliquot.config import PolicySettings
from aliquot.policy_sources import short_name
from aliquot.sim.engine import Scenario, simulate
from aliquot.whatif.figures import EndedCall, FiguresCollector, WindowFigures, measured
from aliquot.whatif.reading import RecordedWindow
from aliquot.whatif.scenario import used_calls

MAX_TRUSTED_ERROR = 0.2


class ModelError(Struct, frozen=True):
    """The relative difference between the simulation of the policy that ran and what was measured."""

    mean: float | None
    p95: float | None
    cold_starts: float | None

    @property
    def is_large(self) -> bool:
        """Return whether the simulated rows are only a rough guess."""
        return any(abs(error) > MAX_TRUSTED_ERROR for error in (self.mean, self.p95) if error is not None)


class WhatIfReport(Struct, frozen=True):
    """The result: what was measured, the policy that ran, and then the others."""

    seconds: float  # of the window, up to the last step of the journal
    measured: WindowFigures
    simulated: list[WindowFigures]  # the first is the policy that ran
    error: ModelError
    left_out: int  # calls of the window that failed, or have not ended
    dropped: int  # older calls that were too many


class WhatIfResult(NamedTuple):
    """The report, and the calls of each row for a picture."""

    report: WhatIfReport
    calls: dict[str, list[EndedCall]]


def run_what_if(
    window: RecordedWindow,
    recorded: Scenario,
    changed: Scenario,
    runs: Sequence[PolicySettings],
    on_progress: Callable[[str, int, int], None],
) -> WhatIfResult:
    """Simulate the policies that ran on the recorded scenario, and each run on the changed one.

    `on_progress` is told the name of a row, the calls that have ended, and all its calls.
    """
    rows = [measured(window)]
    planned = [(f"{short_name(window.settings.queueing)} (it ran)", recorded, window.settings)]
    planned += [(_name(run, runs), changed, run) for run in runs]
    for name, scenario, settings in planned:
        rows.append(_simulate(name, window, scenario, settings, on_progress))
    figures = [row.figures() for row in rows]
    recording = window.recording
    counted = {id(call) for call in used_calls(recording)}
    left_out = sum(call.arrived >= window.from_s and id(call) not in counted for call in recording.calls.values())
    report = WhatIfReport(
        window.until_s - window.from_s,
        figures[0],
        figures[1:],
        _error(figures[0], figures[1]),
        left_out,
        recording.dropped,
    )
    return WhatIfResult(report, {row.name: row.ended for row in rows})


def _name(run: PolicySettings, runs: Sequence[PolicySettings]) -> str:
    name = short_name(run.queueing)
    return f"{name}, {run.keepalive}" if any(run.keepalive != other.keepalive for other in runs) else name


def _simulate(
    name: str,
    window: RecordedWindow,
    scenario: Scenario,
    settings: PolicySettings,
    on_progress: Callable[[str, int, int], None],
) -> FiguresCollector:
    overview = scenario.workload.overview()
    origin = used_calls(window.recording)[0].arrived
    collected = FiguresCollector(name, window.from_s - origin)
    simulate(
        scenario,
        replace(settings, sharing="hard"),  # measured run times contain what was borrowed
        overview=overview,
        on_dispatch=collected.dispatched,
        on_end=collected.completed,
        on_progress=lambda ended: on_progress(name, ended, overview.calls),
    )
    return collected


def _error(real: WindowFigures, again: WindowFigures) -> ModelError:
    def relative(then: float | None, now: float | None) -> float | None:
        return (now - then) / then if then and now is not None else None

    latency, simulated = real.latency_s, again.latency_s
    return ModelError(
        relative(latency.mean, simulated.mean),
        relative(latency.p95, simulated.p95),
        relative(real.cold_starts, again.cold_starts),
    )
