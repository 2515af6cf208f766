"""Simulate one scenario under several policies, and write the table and the files of results."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

from msgspec import Struct
from rich.progress import Progress, TaskID

from aliquot.cli.console import check_distinct, check_writable, output, progress, say, write_file
from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.policy_sources import short_name
from aliquot.sim import plots
from aliquot.sim.arrivals import WorkloadOverview
from aliquot.sim.diagnosis import diagnose
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.output_files import CallsWriter, ScheduleWriter
from aliquot.sim.recorder import RunRecorder
from aliquot.sim.report import RunReport, report, to_json
from aliquot.sim.tables import assumptions, comparison


class ComparisonFiles(Struct, frozen=True):
    """The files that results are written to, beside the terminal."""

    json: Path | None = None
    plot: Path | None = None
    schedule: Path | None = None
    calls: Path | None = None
    plan: Path | None = None
    plan_at_s: float = 0

    def check(self, inputs: Mapping[str, Path | None] | None = None) -> None:
        """Check before the long run that the files can be written and are not inputs."""
        written = {
            "--json": self.json,
            "--plot": self.plot,
            "--schedule": self.schedule,
            "--calls": self.calls,
            "--plan": self.plan,
        }
        check_distinct({**(inputs or {}), **written})
        for option, picture in (("--plot", self.plot), ("--plan", self.plan)):
            if picture is not None:
                plots.check_plot(picture, option)
        for option, path in written.items():
            check_writable(path, option)


def compare(scenario: Scenario, runs: Sequence[PolicySettings], outputs: ComparisonFiles, title: str) -> None:
    """Simulate each run, print the table, and write the files."""
    results = _simulate_all(scenario, runs, outputs)
    reports = [result for result, _ in results]
    say(f"assumed: {assumptions(scenario, runs)}")
    output.print(comparison(reports, title))
    for sentence in diagnose(reports, scenario):
        say(sentence)
    if outputs.json is not None:
        write_file(outputs.json, to_json(reports), "--json")
    if outputs.plot is not None:
        plots.draw_comparison(results, title, outputs.plot)
    if outputs.plan is not None:
        from aliquot.sim.plan_picture import draw_plan, plan_at

        plan = plan_at(scenario, runs[0], outputs.plan_at_s)
        draw_plan(plan, f"The plan at {plan.at_s:g} s: {title}", outputs.plan)
    for path in (outputs.json, outputs.plot, outputs.schedule, outputs.calls, outputs.plan):
        if path is not None:
            say(f"wrote {path}")


def _simulate_all(
    scenario: Scenario, runs: Sequence[PolicySettings], outputs: ComparisonFiles
) -> list[tuple[RunReport, RunRecorder]]:
    results = []
    with ExitStack() as stack:
        bar = stack.enter_context(progress())
        reading = bar.add_task("reading the trace", total=None)
        overview = scenario.workload.overview()
        bar.remove_task(reading)
        _check_tenants(scenario, overview)
        file = _open(outputs.schedule, "--schedule", stack)
        writer = None if file is None else ScheduleWriter(file)
        file = _open(outputs.calls, "--calls", stack)
        calls = None if file is None else CallsWriter(file)
        for settings in runs:
            name = short_name(settings.queueing)
            if any(other.prefetching != settings.prefetching for other in runs):
                name += f", {settings.prefetching}"
            if any(other.admission != settings.admission for other in runs):
                name += f", {settings.admission}"
            task = bar.add_task(f"{name}, seed {settings.seed}", total=overview.calls)
            recorder = simulate(
                scenario,
                settings,
                overview=overview,
                on_dispatch=None if writer is None else partial(writer.write, settings),
                on_end=None if calls is None else partial(calls.write, settings),
                on_progress=partial(_show, bar, task),
            )
            results.append((report(name, settings.seed, recorder, scenario.devices), recorder))
    return results


def _check_tenants(scenario: Scenario, overview: WorkloadOverview) -> None:
    tenants = dict.fromkeys(key.tenant for key in overview.flows)
    for tenant in scenario.tenant_weights:
        if tenant not in tenants:
            raise InputError(f"--tenant-weight: there is no tenant {tenant}; there are {', '.join(tenants) or 'none'}")


def _show(bar: Progress, task: TaskID, ended: int) -> None:
    bar.update(task, completed=ended)


def _open(path: Path | None, option: str, stack: ExitStack) -> IO[str] | None:
    if path is None:
        return None
    try:
        return stack.enter_context(path.open("w", encoding="utf-8", newline=""))
    except OSError as error:
        raise InputError(f"{option}: {path} cannot be written: {error.strerror}") from error
