"""`aliquot usage`: the use of accelerators over time, compared with the requested shares."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from aliquot.cli.console import output
from aliquot.cli.gateway import AsJson
from aliquot.cli.results import clock, percent, print_json, seconds, show, size, table
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.sdk.server import find_folder
from aliquot.sdk.units import read_ms

if TYPE_CHECKING:
    from aliquot.live.usage.series import UsageRow


def usage(
    function: Annotated[str | None, typer.Argument(help="Only this function: NAME, or /NAMESPACE/NAME.")] = None,
    sandbox: Annotated[int | None, typer.Option(help="Only the sandbox with this number.")] = None,
    each: Annotated[bool, typer.Option("--each", help="Show a row for each sandbox, not for each function.")] = False,
    bill: Annotated[
        bool, typer.Option("--bill", help="Sum calls, device time and memory by tenant and action.")
    ] = False,
    last: Annotated[
        str, typer.Option(help="The time before the newest sample, or all.", show_default="1m; with --bill 30d")
    ] = "",
    window: Annotated[str, typer.Option(help="The length of the windows that are averaged, 20ms or more.")] = "100ms",
    plot: Annotated[Path | None, typer.Option(help="Draw the use over time to this file (.png, .svg, .pdf).")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The platform's data folder.",
            show_default="ALIQUOT_DATA, then ~/.aliquot, then that of the only server that runs",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the use of accelerators by function, compared with the requested share. For the operator.

    The command reads the data folder, so the platform need not run. With --json each row has its windows.

    --bill reads the totals of days, which stay when records are deleted. With --each it has a row for each day (UTC).
    """
    if bill:
        from aliquot.cli.bill import print_bill

        print_bill(Path(find_folder(data)).expanduser(), function, last or "30d", by_day=each, as_json=as_json)
        return
    from aliquot.live.usage.reading import read_usage
    from aliquot.live.usage.series import usage_rows

    window_ms = read_ms(window, "--window")
    if window_ms < 20:  # noqa: PLR2004 - two samples
        raise InputError(f"--window: {window} is too short; it takes 20ms or more")
    if plot is not None:
        from aliquot.sim.plots import check_plot

        check_plot(plot)
    tracks = read_usage(
        Path(find_folder(data)).expanduser(), None if last == "all" else read_ms(last or "1m", "--last") / 1000
    )
    wanted = [
        track
        for track in tracks
        if function in (None, track.label.function, f"/{track.label.tenant}/{track.label.function}")
        and sandbox in (None, track.label.sandbox)
    ]
    found = usage_rows(wanted, window_ms, each_sandbox=each or sandbox is not None)
    if plot is not None:
        _draw(found, plot, window_ms)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    _show(found)


def _show(found: "list[UsageRow]") -> None:
    if not found:
        output.print("no samples of that; --last all shows all that are kept")
        return
    made = table(
        "share of the device used, while active",
        *("tenant", "function", "device", "sandboxes", ">requested", ">mean", ">deviation", ">peak"),
        *(">active", ">compute", ">memory", "until"),
        names=2,
    )
    for row in found:
        numbers = ",".join(map(str, row.sandboxes))
        made.add_row(
            row.tenant,
            row.function,
            row.device,
            numbers if len(row.sandboxes) <= 4 else str(len(row.sandboxes)),  # noqa: PLR2004 - what a column holds
            percent(row.request) + ("" if row.enforced else "!"),
            f"{100 * row.share:.1f}%",
            f"{100 * row.deviation:.1f}%",
            percent(row.peak),
            seconds(row.active_s),
            seconds(row.compute_s),
            size(row.peak_bytes),
            clock(row.windows[-1].t_ms) if row.windows else "",
        )
    show(made)
    if not all(row.enforced for row in found):
        output.print("[yellow]! not enforced: nothing limits these to their requested shares; see aliquot doctor[/]")


def _draw(found: "list[UsageRow]", path: Path, window_ms: int) -> None:
    """Draw two panels for each device, one for compute and one for memory. A line ends where nothing was measured."""
    from aliquot.sim.plots import PlotLine, PlotPanel, broken_at_gaps, draw_panels

    began_ms = min((row.windows[0].t_ms for row in found if row.windows), default=0)
    panels = []
    for device in sorted({row.device for row in found}):
        shares, memory = [], []
        for row in (row for row in found if row.device == device):
            name = f"{row.tenant}/{row.function} ({','.join(map(str, row.sandboxes))})"
            at_s = [(window.t_ms - began_ms) / 1000 for window in row.windows]

            def line(label: str, values: list[float], *, dashed: bool = False, at_s: list[float] = at_s) -> PlotLine:
                return PlotLine(label, *broken_at_gaps(at_s, values, 1.5 * window_ms / 1000), dashed)

            shares.append(line(name, [100 * window.share for window in row.windows]))
            shares.append(line(f"{name}: requested", [100 * window.request for window in row.windows], dashed=True))
            memory.append(line(name, [window.memory_bytes / MIB for window in row.windows]))
        since = f"seconds since {clock(began_ms)}"
        panels.append(PlotPanel(f"{device}: compute", since, "% of the device", shares, legend_outside=True))
        panels.append(PlotPanel(f"{device}: memory", since, "MiB", memory, legend_outside=True))
    if panels:
        draw_panels(panels, "Usage of accelerators by tenant/function (sandboxes)", path, columns=1)
